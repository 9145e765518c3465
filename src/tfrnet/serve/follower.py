"""A replica's eye on a state that another process writes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tfrnet.core.tensors import State
from tfrnet.state.store import StateStore

# How often the pointer of the state is looked at.
_SECONDS = 0.2

# A generation's number and the digest of its tensors: a restored state may reach the same number
# in another way.
Shown = tuple[int, str]


def shown_of(store: StateStore) -> Shown:
    """Return what completions show once they follow a state as it is."""
    return store.generation, store.position.digest


class Follower:
    """Looks at a state in a thread of its own and hands on every new generation."""

    def __init__(
        self,
        folder: Path,
        shown: Shown,
        show: Callable[[State, int], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._folder = folder
        self._show = show
        self._failed = failed
        self._seen: Any = None
        self._behind_since: float | None = None
        self._shown = shown
        self.problem = ""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stopping.set()
        self._thread.join(5)

    @property
    def lag(self) -> float:
        """Seconds since the state was first seen to be ahead, or not to be readable; else 0."""
        since = self._behind_since
        return 0.0 if since is None else time.monotonic() - since

    def _run(self) -> None:
        while not self._stopping.wait(_SECONDS):
            self._look()

    def _look(self) -> None:
        try:
            about = (self._folder / "current.json").stat()
            stamp = (about.st_mtime_ns, about.st_ino)
            if stamp == self._seen:
                return
            self._behind_since = self._behind_since or time.monotonic()
            store = StateStore.open(self._folder)
            if (found := shown_of(store)) != self._shown:
                self._show(store.load(), store.generation)
                self._shown = found
            self._seen, self._behind_since, self.problem = stamp, None, ""
        except Exception as error:
            self._seen = None  # the same file may come back
            self._behind_since = self._behind_since or time.monotonic()
            if not self.problem:
                self._failed(error)
            self.problem = "the state cannot be read"
