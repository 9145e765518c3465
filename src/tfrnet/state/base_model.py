"""The name of a state's base model, and where this machine has it.

The name goes into the manifest, and from there into certificates and exports, so it tells nothing
about folders. Where a local model lies is kept beside it, in a file that no digest covers and no
backup holds; a state that has lost it asks for --model.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from tfrnet.core import files
from tfrnet.state.layout import Layout


def bare_name(model: str) -> str:
    """Return a model's name without the folders that it lies in; a hub id stays as it is."""
    path = Path(model).expanduser()
    if path.is_absolute() or model.startswith(".") or path.exists():
        return path.resolve().name or model
    return model


def remember_place(layout: Layout, model: str) -> None:
    """Note where a local model lies, if it is one. Without the note all still works."""
    path = Path(model).expanduser()
    if not path.exists():
        return
    place = str(path.resolve())
    with suppress(OSError, UnicodeError):
        if _noted(layout) != place:
            files.replace_file(layout.base_model, place.encode(), files.PRIVATE)


def where_model_lies(layout: Layout, name: str) -> str:
    """Return what to load the model of that name from: where it was last, if that is noted."""
    return _noted(layout) or name


def _noted(layout: Layout) -> str:
    with suppress(OSError, UnicodeError):
        return layout.base_model.read_text()
    return ""
