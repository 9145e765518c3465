"""Commands whose output goes to a terminal or a pipe, heard while it is written."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

from tests.integration.commands import run_main


class Said(NamedTuple):
    code: int
    text: str
    gap: float  # the longest time between two pieces of it


Tfrnet = Callable[..., Said]


class Listener:
    """Reads what is written to a terminal or a pipe, as a person would: while it is written."""

    def __init__(self, terminal: bool) -> None:
        self._reading, self.writing = os.openpty() if terminal else os.pipe()
        self._pieces: list[bytes] = []
        self._gap = 0.0
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        last = time.monotonic()
        while True:
            try:
                piece = os.read(self._reading, 4096)
            except OSError:  # how a terminal ends
                piece = b""
            self._gap, last = max(self._gap, time.monotonic() - last), time.monotonic()
            if not piece:
                return
            self._pieces.append(piece)

    def end(self, code: int) -> Said:
        """Return what was heard, once the writing end is closed."""
        self._thread.join()
        os.close(self._reading)
        return Said(code, b"".join(self._pieces).decode(), self._gap)


def in_this_process(terminal: bool) -> Tfrnet:
    def run(*arguments: object) -> Said:
        heard = Listener(terminal)
        stream = os.fdopen(heard.writing, "w")
        with stream, redirect_stdout(stream), redirect_stderr(stream):
            code = run_main(arguments)
        return heard.end(code)

    return run
