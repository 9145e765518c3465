"""One writer at a time: a lock that the operating system drops when its holder dies."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from tfrnet.core.errors import StateError


class FolderLock:
    """An exclusive lock on a state folder."""

    def __init__(self, folder: Path) -> None:
        self._descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._descriptor, 32).decode(errors="replace").strip()
            os.close(self._descriptor)
            who = f"process {holder}" if holder.isdigit() else "another process"
            who = "this process" if holder == str(os.getpid()) else who
            raise StateError(f"state {folder} is in use by {who}; wait until it ends") from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, str(os.getpid()).encode(), 0)

    def release(self) -> None:
        """Let others in."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
