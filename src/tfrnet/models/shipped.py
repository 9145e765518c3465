"""Models that other packages bring, by name: folders that their entry points name.

An entry point of the group `tfrnet.models` is a function without arguments that returns the
folder. Ours are the backbones of the package tfrnet-backbones: LoRA adapters on the default model.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

from tfrnet.core.errors import InputError

GROUP = "tfrnet.models"
# Named here too, so that an error can say what to install.
BACKBONES = (
    "smollm2-tasks",
    "smollm2-tasks-oracle",
    "smollm2-tofu-full",
    "smollm2-tofu-retain90",
    "smollm2-tofu-chat-full",
    "smollm2-tofu-chat-retain90",
    "smollm2-lume",
    "smollm2-knowundo",
)
INSTALL = "pip install packages/backbones"


def find_shipped(name: str) -> Path | None:
    """Return the folder of a model that an installed package provides, or None.

    Raises `InputError` for one of our backbones whose package is not installed.
    """
    for point in entry_points(group=GROUP, name=name):
        return Path(point.load()())
    if name in BACKBONES:
        raise InputError(
            f"the backbone {name} is not installed; in a clone of tfrnet's repository, install it "
            f"with: {INSTALL}"
        )
    return None
