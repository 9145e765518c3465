"""A folder that appears whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tfrnet.core.errors import InputError, TfrnetError
from tfrnet.core.lock import FolderLock
from tfrnet.state.layout import Layout


def refuse_existing(folder: Path) -> None:
    """Raise if a folder holds something already, is a file or a link, or lies in a state."""
    if folder.is_symlink():
        raise InputError(
            f"{folder} is a link, so no folder can take its place; choose a new folder"
        )
    for parent in folder.absolute().parents:
        if Layout(parent).manifest.is_file() and Layout(parent).ledger.is_file():
            raise InputError(f"{folder} lies in the state {parent}; choose a folder outside it")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} exists already and is not empty; choose a new folder")


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield a folder beside the wanted one; it takes its place when nothing went wrong.

    It has a name of its own, so that what a killed export has left is used again, not kept for
    ever. A lock keeps two exports to one folder apart.
    """
    refuse_existing(folder)
    partial = folder.parent / f".{folder.absolute().name}.exporting"
    try:
        partial.mkdir(parents=True, exist_ok=True)
        lock = FolderLock(partial)
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror}") from error
    try:
        _empty(partial)
        yield partial
        (partial / "lock").unlink()
        _open_to_readers(partial)
        if folder.exists():
            folder.rmdir()
        partial.rename(folder)
    except TfrnetError:
        raise
    except Exception as error:
        # A full or failing disk reaches us as whatever the libraries that write make of it.
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())[:300]
        raise InputError(f"{folder} cannot be written: {reason}; nothing was exported") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        lock.release()


def _open_to_readers(folder: Path) -> None:
    """Let others read, as a model folder is read: some libraries write for their owner alone."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.name == "lock":
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
