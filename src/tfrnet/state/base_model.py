"""The name of a state's base model, and where this machine has it.

The name goes into the manifest, and from there into certificates and exports, so it tells nothing
about folders. Where a local model lies is noted beside it, in a file that no backup holds; a state
that has lost it asks for --model. The note changes when the model moves, so the ledger cannot cover
it: it carries a digest of its own, against accidents. Another model in that place is refused by its
fingerprint.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path

from tfrnet.core import files
from tfrnet.core.errors import StateError
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
        note = _note(place)
        if not layout.base_model.exists() or layout.base_model.read_bytes() != note:
            files.replace_file(layout.base_model, note, files.PRIVATE)


def where_model_lies(layout: Layout, name: str) -> str:
    """Return what to load the model of that name from: where it was last, if that is noted."""
    with suppress(StateError):
        return noted_place(layout) or name
    return name


def noted_place(layout: Layout) -> str:
    """Return where the model was last, or nothing if that is not noted; damage is raised."""
    path = layout.base_model
    try:
        data = path.read_bytes()
        if data.startswith(b"/"):  # a note of before: the path alone
            return data.decode()
        place = str(json.loads(data)["place"])
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        place = ""
    if not place or data != _note(place):
        raise StateError(f"{path} is damaged; it is written anew when you next give --model")
    return place


def _note(place: str) -> bytes:
    digest = hashlib.sha256(place.encode()).hexdigest()
    return json.dumps({"place": place, "sha256": digest}).encode()
