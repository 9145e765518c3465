"""Where a model lies, by its name. Imports no torch, so that a wrong name is told at once."""

from __future__ import annotations

import re
from pathlib import Path

from tfrnet.core.errors import InputError
from tfrnet.models.bundled import BUNDLED, bundled_gguf
from tfrnet.models.shipped import find_shipped

ADAPTER_CONFIG = "adapter_config.json"


def model_place(name: str) -> Path | None:
    """Return the folder or GGUF file that a model's name stands for; None for a hub id.

    A folder takes precedence over a shipped adapter of the same name.
    """
    if name == BUNDLED:
        return bundled_gguf()
    path = Path(name).expanduser()
    if path.suffix == ".gguf":
        if not path.is_file():
            raise InputError(f"model file {name} does not exist")
        return path
    if not path.is_dir():
        path = find_shipped(name) or path
    if path.is_dir():
        if not any((path / file).is_file() for file in (ADAPTER_CONFIG, "config.json")):
            raise InputError(f"model folder {name} holds no config.json, so it is not a model")
        return path
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name) or name.startswith("."):
        raise InputError(f"model folder {name} does not exist; give its path with --model")
    return None
