"""A state made from a backup: all of it, or nothing."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from tfrnet.core import files
from tfrnet.core.errors import InputError, StateError
from tfrnet.core.lock import FolderLock
from tfrnet.state.backup import CONTENTS, FORMAT, KIND
from tfrnet.state.layout import Layout
from tfrnet.state.store import StateStore

_MOST_CONTENTS = 64 << 20
_CHUNK = 1 << 20
_GENERATION = re.compile(r"generations/\d{8,}\.safetensors")


def restore(backup: Path, folder: Path) -> dict[str, Any]:
    """Make a state from a backup and return the list of its contents.

    Every digest is checked before anything is written, and the state again before it appears.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} exists already and is not empty; choose a new folder")
    contents = check(backup)
    # A name of its own: what a restore that was killed has left is used again, not kept for ever.
    partial = folder.parent / f".{folder.absolute().name}.restoring"
    try:
        for path in (partial, Layout(partial).generations):
            files.make_folder(path, files.PRIVATE_FOLDER)
        lock = FolderLock(partial)
    except OSError as error:
        for made in (Layout(partial).generations, partial):
            with suppress(OSError):
                made.rmdir()
        raise InputError(f"{folder} cannot be written: {error.strerror}") from error
    try:
        _empty(partial)
        _extract(backup, partial)
        _check_state(partial, backup)
        (partial / "lock").unlink()
        files.rename(partial, folder)
        files.fsync_folder(folder.parent)
    except OSError as error:
        raise InputError(
            f"{folder} cannot be written: {error.strerror}; nothing was restored"
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        lock.release()
    return contents


def check(backup: Path) -> dict[str, Any]:
    """Recompute every digest of a backup and return the list of its contents."""
    with _read_errors(backup), tarfile.open(backup, "r:") as archive:
        contents = _contents(archive, archive.next(), backup)
        awaited = dict(contents["files"])
        while member := archive.next():
            wanted = awaited.pop(member.name, None)
            if wanted is None:
                raise InputError(f"{backup} is damaged: {member.name!r} does not belong in it")
            if {"size": member.size, "sha256": _digest(archive, member)} != wanted:
                raise InputError(f"{backup} is damaged: the digest of {member.name} does not match")
    if awaited:
        raise InputError(f"{backup} is damaged: {min(awaited)} is missing")
    return contents


def _contents(
    archive: tarfile.TarFile, member: tarfile.TarInfo | None, backup: Path
) -> dict[str, Any]:
    """Return the list that a backup begins with; another format is refused before all else."""
    if member is None or member.name != CONTENTS or not 0 < member.size <= _MOST_CONTENTS:
        raise InputError(f"{backup} is not a backup of a state")
    try:
        contents: dict[str, Any] = json.loads(_file(archive, member).read())
        kind, found, listed = contents["kind"], contents["format"], contents["files"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InputError(f"{backup} is not a backup of a state") from None
    if kind != KIND:
        raise InputError(f"{backup} is not a backup of a state")
    if found != FORMAT:
        raise InputError(
            f"{backup} has backup format {found}, and this version of tfrnet reads format "
            f"{FORMAT}; use the version that wrote it"
        )
    layout = Layout(Path())
    needed = {path.name for path in (layout.manifest, layout.ledger, layout.pointer)}
    own = needed | {layout.key.name}  # which may be kept elsewhere
    if not isinstance(listed, dict) or not needed <= listed.keys():
        raise InputError(f"{backup} is damaged: its list of files is not that of a state")
    strange = [name for name in listed if name not in own and not _GENERATION.fullmatch(name)]
    if strange:
        raise InputError(f"{backup} is damaged: {strange[0]!r} does not belong in it")
    return contents


def _digest(archive: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    file, digest = _file(archive, member), hashlib.sha256()
    while piece := file.read(_CHUNK):
        digest.update(piece)
    return digest.hexdigest()


def _file(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    file = archive.extractfile(member) if member.isreg() else None
    if file is None:
        raise InputError(f"{archive.name!s} is damaged: {member.name!r} is not a plain file")
    return file


def _extract(backup: Path, folder: Path) -> None:
    """Write the files of a backup that was checked, durably."""
    with _read_errors(backup), tarfile.open(backup, "r:") as archive:
        for member in archive:
            if member.name == CONTENTS:
                continue
            source = _file(archive, member)
            with files.new_file(folder / member.name, files.PRIVATE) as write:
                while piece := source.read(_CHUNK):
                    write(piece)


def _empty(folder: Path) -> None:
    """Remove what a restore that was killed has left."""
    for path in [*folder.iterdir(), *Layout(folder).generations.iterdir()]:
        if path.name != "lock" and not path.is_dir():
            path.unlink()


def _check_state(folder: Path, backup: Path) -> None:
    try:
        store = StateStore.open(folder)
        if store.layout.key.exists():
            store.key()
        for number in store.layout.numbers():
            store.load(number)
    except StateError as error:
        raise InputError(f"{backup} holds a damaged state: {error}") from None


@contextmanager
def _read_errors(backup: Path) -> Iterator[None]:
    """Turn what an unreadable or cut-off file raises into one line."""
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"backup {backup} does not exist") from None
    except IsADirectoryError:
        raise InputError(f"backup {backup} is a folder, not a file") from None
    except tarfile.TarError:
        raise InputError(f"{backup} is not a backup of a state, or is cut off") from None
