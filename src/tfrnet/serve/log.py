"""The log: one JSON object a line on stderr, and no word of a request in it."""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
import warnings
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from tfrnet.core.errors import TfrnetError, TfrnetWarning


class Log:
    """Writes events with their facts."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._lock = threading.Lock()

    def say(self, event: str, **facts: Any) -> None:
        """Write one event."""
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": time, "event": event} | facts, default=str)
        # A full disk or a closed pipe must not end the work of whoever has something to say.
        with self._lock, suppress(OSError, ValueError):
            print(line, file=self._stream, flush=True)

    def error(self, event: str, error: BaseException, **facts: Any) -> None:
        """Write what went wrong and where. What errors not ours say may hold words."""
        frames = traceback.extract_tb(error.__traceback__)[-6:]
        where = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
        if isinstance(error, TfrnetError):
            facts["detail"] = str(error)
        self.say(event, error=type(error).__name__, where=where, **facts)

    def warn(self, detail: str) -> None:
        """Write what an operator should know, though the work goes on."""
        self.say("warning", level="warning", detail=detail)

    def take_warnings(self) -> None:
        """Write down the warnings of this process from now on, as the command line shows them."""

        def write(message: Warning | str, category: type[Warning], *rest: Any) -> None:
            if issubclass(category, TfrnetWarning) or os.environ.get("TFRNET_DEBUG"):
                self.warn(str(message))

        warnings.showwarning = write  # type: ignore[assignment]
