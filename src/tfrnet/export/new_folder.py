"""A folder that appears whole or not at all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tfrnet.core.errors import InputError, TfrnetError
from tfrnet.core.lock import FolderLock
from tfrnet.state.layout import Layout


def refuse_existing(folder: Path) -> None:
    """Raise if no new folder can take a place: it holds something, is a link, lies in a state."""
    if folder.is_symlink():
        raise InputError(
            f"{folder} is a link, so no folder can take its place; choose a new folder"
        )
    # Neither can be replaced by another folder, even if it is empty.
    for problem, is_so in (
        ("is the folder you are in", folder.resolve() == Path.cwd()),
        ("is where a disk is mounted", folder.is_mount()),
    ):
        if is_so:
            raise InputError(f"{folder} {problem}; choose a new folder in it")
    for parent in folder.absolute().parents:
        if Layout(parent).manifest.is_file() and Layout(parent).ledger.is_file():
            raise InputError(f"{folder} lies in the state {parent}; choose a folder outside it")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} exists already and is not empty; choose a new folder")


def refuse_unwritable(folder: Path) -> None:
    """Raise before long work if a new folder could not be made there."""
    refuse_existing(folder)
    parent = next(each for each in folder.absolute().parents if each.exists())
    try:
        Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=parent)).rmdir()
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror}") from error


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield a folder beside the wanted one; it takes its place when nothing went wrong.

    It has a name of its own, so that what a killed process has left is used again, not kept for
    ever. A lock keeps two processes with one folder apart.
    """
    refuse_existing(folder)
    partial = folder.parent / f".{folder.absolute().name}.partial"
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
        raise InputError(f"{folder} cannot be written: {reason}; nothing was written") from error
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
