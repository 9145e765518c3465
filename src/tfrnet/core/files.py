"""The few file operations that a commit is made of. Everything that touches a state uses these.

Kept in one place so that tests can fail or kill each of them in turn.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tfrnet.core.posix import fcntl

# What a file system says that has no full fsync.
_NOT_OFFERED = (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY)

# What tells of requests is for its owner alone.
PRIVATE = 0o600
PRIVATE_FOLDER = 0o700
# The permissions of everybody else.
OTHERS = stat.S_IRWXG | stat.S_IRWXO


def write(descriptor: int, data: bytes) -> None:
    """Write all of `data`."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def fsync(descriptor: int) -> None:
    """Wait until a file's content is on the disk."""
    # On macOS fsync leaves the drive's own cache alone; this does not.
    if hasattr(fcntl, "F_FULLFSYNC"):
        try:
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
            return
        except OSError as error:
            if error.errno not in _NOT_OFFERED:
                raise
    os.fsync(descriptor)


def rename(source: Path, target: Path) -> None:
    """Put a file in place of another, at once."""
    source.replace(target)


def fsync_folder(folder: Path) -> None:
    """Wait until a folder's entries, so a rename, are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Make a folder and its parents so that they outlast a power cut; existing ones are fine."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(mode, parents=True, exist_ok=True)
    for path in missing:
        fsync_folder(path.parent)


def replace_file(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Give a file new content: a temporary file in the same folder, fsync, rename, fsync."""
    put_in_place(staged(path, data, mode), path)


def staged(path: Path, data: bytes, mode: int = 0o644) -> Path:
    """Write a file's new content beside it, durably, and return where it waits."""
    temporary = path.with_name(f".{path.name}.partial")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        write(descriptor, data)
        fsync(descriptor)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise
    finally:
        os.close(descriptor)
    return temporary


def put_in_place(temporary: Path, path: Path) -> None:
    """Let what was staged take its place, durably."""
    rename(temporary, path)
    fsync_folder(path.parent)


@contextmanager
def new_file(path: Path, mode: int) -> Iterator[Callable[[bytes], None]]:
    """Make a file that may be larger than memory; it is there when the block ends, or not at all.

    What is given is called with one piece after another.
    """
    temporary = path.with_name(f".{path.name}.partial")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        try:
            yield lambda data: write(descriptor, data)
            fsync(descriptor)
        finally:
            os.close(descriptor)
        put_in_place(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def remove(path: Path) -> None:
    """Remove a file and wait until it is gone, so that files go in the order of the calls."""
    path.unlink(missing_ok=True)
    fsync_folder(path.parent)


def append(path: Path, data: bytes) -> None:
    """Add to the end of a file and wait until it is on the disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        write(descriptor, data)
        fsync(descriptor)
    finally:
        os.close(descriptor)


def truncate(path: Path, length: int) -> None:
    """Cut a file back to `length` bytes."""
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.ftruncate(descriptor, length)
        fsync(descriptor)
    finally:
        os.close(descriptor)


def create_file(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Make a file that is whole or not there; one that exists is a `FileExistsError`."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        try:
            write(descriptor, data)
            fsync(descriptor)
        finally:
            os.close(descriptor)
        path.hardlink_to(temporary)
    finally:
        temporary.unlink(missing_ok=True)
    fsync_folder(path.parent)
