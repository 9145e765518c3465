"""What happens, told at once to whoever listens."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

# A listener who is further behind has to begin anew.
_MOST_UNHEARD = 500


class Listener:
    """One who listens, in an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._unheard: asyncio.Queue[Mapping[str, Any] | None] = asyncio.Queue(_MOST_UNHEARD)

    def tell(self, news: Mapping[str, Any] | None) -> None:
        """Pass news on, from any thread; None ends the listening."""
        self._loop.call_soon_threadsafe(self._put, news)

    def _put(self, news: Mapping[str, Any] | None) -> None:
        if self._unheard.full():
            while not self._unheard.empty():
                self._unheard.get_nowait()
            news = None
        self._unheard.put_nowait(news)

    async def hear(self, seconds: float) -> Mapping[str, Any] | None:
        """Return the next news, an empty one if there is none in some seconds, or None at the end.

        The empty one is to be sent on too: so it is found out that a client has gone.
        """
        try:
            return await asyncio.wait_for(self._unheard.get(), seconds)
        except TimeoutError:
            return {}


class News:
    """Passes on what happens; what happened before is in the queue's events."""

    def __init__(self) -> None:
        self._listeners: set[Listener] = set()
        self._lock = threading.Lock()
        self._over = False

    def tell(self, news: Mapping[str, Any]) -> None:
        """Pass news on, from any thread."""
        with self._lock:
            for listener in self._listeners:
                listener.tell(news)

    @contextmanager
    def listening(self) -> Iterator[Listener]:
        """Listen in a block, in the running event loop."""
        listener = Listener(asyncio.get_running_loop())
        with self._lock:
            self._listeners.add(listener)
            if self._over:
                listener.tell(None)
        try:
            yield listener
        finally:
            with self._lock:
                self._listeners.discard(listener)

    def end(self) -> None:
        """Send all listeners home."""
        with self._lock:
            self._over = True
            for listener in self._listeners:
                listener.tell(None)
