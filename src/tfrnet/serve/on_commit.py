"""Running a command of the operator's after every commit, such as an export to another server."""

from __future__ import annotations

import os
import shlex
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

from tfrnet.core.errors import InputError


def command_words(command: str) -> list[str]:
    """Return the words of a command, as a shell splits them."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError(f"--on-commit is not a command: {error}") from None
    if not words:
        raise InputError("--on-commit is empty")
    return words


class OnCommit:
    """Runs a command for the newest generation, one at a time; what it missed it makes up for.

    The command is told TFRNET_STATE and TFRNET_GENERATION. `said` hears how it ended.
    """

    def __init__(self, command: str, state: Path, said: Callable[[int, int], None]) -> None:
        self._words = command_words(command)
        self._state = state
        self._said = said
        self._newest: int | None = None
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="on-commit", daemon=True)
        self._thread.start()

    def committed(self, generation: int) -> None:
        """Note a new generation; returns at once."""
        with self._changed:
            self._newest = generation
            self._changed.notify()

    def stop(self, seconds: float) -> None:
        """Wait for the command that runs."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join(seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                while self._newest is None and not self._stopping:
                    self._changed.wait()
                if self._newest is None:
                    return
                generation, self._newest = self._newest, None
            told = {
                "TFRNET_STATE": str(self._state.resolve()),
                "TFRNET_GENERATION": str(generation),
            }
            try:
                code = subprocess.run(
                    self._words, env=os.environ | told, stdin=subprocess.DEVNULL
                ).returncode
            except OSError:
                code = 127
            self._said(generation, code)
