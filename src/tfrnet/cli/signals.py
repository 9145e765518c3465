"""Being asked to stop: by Ctrl-C, by another program, or because the terminal went away."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_ASKED = ("SIGTERM", "SIGHUP")  # the latter is not there on every system


@contextmanager
def stopped_alike() -> Iterator[None]:
    """Let these signals end a command as Ctrl-C does: at the same points, with the same words."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [getattr(signal, name) for name in _ASKED if hasattr(signal, name)]
    # A signal that is ignored stays so: nohup asks for it.
    before = {n: signal.getsignal(n) for n in numbers if signal.getsignal(n) != signal.SIG_IGN}
    for number in before:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
