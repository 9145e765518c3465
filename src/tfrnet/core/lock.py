"""One writer at a time: a lock that the operating system drops when its holder dies."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tfrnet.core.errors import StateError
from tfrnet.core.posix import fcntl

# Some network file systems lock files and no folders.
_NO_FOLDER_LOCKS = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOTSUP)


class FolderLock:
    """An exclusive lock on a folder, and on a file `lock` in it that says who holds it.

    The file alone would not do: whoever deletes it would let a second writer in.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptors: list[int] = []
        try:
            self._take(os.open(folder, os.O_RDONLY | os.O_DIRECTORY), is_folder=True)
            file = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
            self._take(file, is_folder=False)
            os.ftruncate(file, 0)
            os.pwrite(file, str(os.getpid()).encode(), 0)
        except BlockingIOError:
            self.release()
            raise StateError(
                f"state {folder} is in use by {_holder(folder)}; wait until it ends"
            ) from None
        except BaseException:
            self.release()
            raise

    def _take(self, descriptor: int, is_folder: bool) -> None:
        self._descriptors.append(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError as error:
            if not (is_folder and error.errno in _NO_FOLDER_LOCKS):
                raise

    def refuse_lost(self) -> None:
        """Raise if the folder, or the lock file in it, is no longer the one that was locked."""
        for descriptor, path in zip(
            self._descriptors, (self._folder, self._folder / "lock"), strict=False
        ):
            try:
                held = os.path.samestat(os.fstat(descriptor), path.stat())
            except FileNotFoundError:
                held = False
            if not held:
                raise StateError(
                    f"{path} was removed or replaced while the state was open, so another "
                    "process may be writing; open the state again"
                )

    def release(self) -> None:
        """Let others in."""
        while self._descriptors:
            os.close(self._descriptors.pop())


@contextmanager
def changing(path: Path) -> Iterator[None]:
    """Keep others who ask for this from reading and replacing a file meanwhile; they wait.

    The lock is a file beside it: the file itself may not be there yet, and is another one once it
    was replaced. It stays, for whoever removed it would let two in.
    """
    lock = path.with_name(f".{path.name}.lock")
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _holder(folder: Path) -> str:
    try:
        holder = (folder / "lock").read_text(errors="replace")[:32].strip()
    except OSError:
        holder = ""
    if holder == str(os.getpid()):
        return "this process"
    return f"process {holder}" if holder.isdigit() else "another process"
