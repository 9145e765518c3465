"""The cache folder, and models in it that appear whole or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tfrnet.core.errors import InputError, StateError
from tfrnet.core.lock import FolderLock

# Marks a model whose tokenizer need not be checked again; earlier versions left none.
CHECKED = "tokenizer-checked"
# What the folders of models in the making are called; the last two are of earlier versions.
_PREFIXES = (".making-", ".converting-", ".merging-")


def cache_folder() -> Path:
    """Return the cache folder: `TFRNET_CACHE`, or else a folder in the user's cache."""
    chosen = os.environ.get("TFRNET_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "tfrnet"


@contextmanager
def new_model(target: Path) -> Iterator[Path]:
    """Yield a folder that takes the place of `target` when the block ends well.

    What killed processes have left is removed first; a lock tells it from what others are making. A
    model without the mark `CHECKED` gives way.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(target.parent)
        partial, lock = _begin(target.parent)
    except OSError as error:
        raise InputError(
            f"the model cache {target.parent} cannot be written ({error.strerror}); "
            "set TFRNET_CACHE to another folder"
        ) from None
    try:
        yield partial
        (partial / CHECKED).touch()
        if target.is_dir() and not (target / CHECKED).exists():
            _discard(target)
        # The rename is atomic; if another process was faster, its copy is just as good.
        if not target.is_dir():
            partial.rename(target)
            (target / "lock").unlink()
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        lock.release()


def _begin(folder: Path) -> tuple[Path, FolderLock]:
    """Make a folder for a model; it is locked until the model is there."""
    while True:
        made = Path(tempfile.mkdtemp(prefix=_PREFIXES[0], dir=folder))
        try:
            return made, FolderLock(made)
        except (StateError, FileNotFoundError):
            continue  # another process took it for abandoned before it was locked


def _discard(target: Path) -> None:
    """Remove a model without the mark; for other processes it is gone at once."""
    # Not made first: another process might take an empty folder for an abandoned one.
    aside = target.with_name(_PREFIXES[0] + secrets.token_hex(8))
    target.rename(aside)
    if (aside / CHECKED).exists():
        aside.rename(target)  # another process was faster, and this is its new model
    else:
        shutil.rmtree(aside, ignore_errors=True)


def _remove_abandoned(folder: Path) -> None:
    for path in folder.iterdir():
        if not path.name.startswith(_PREFIXES):
            continue
        try:
            lock = FolderLock(path)
        except (StateError, OSError):
            continue  # somebody is at work on it, or it is gone
        shutil.rmtree(path, ignore_errors=True)
        lock.release()
