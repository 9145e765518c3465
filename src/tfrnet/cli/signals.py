"""Being asked to stop: by Ctrl-C, by another program, or because the terminal went away."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_ASKED = ("SIGINT", "SIGTERM", "SIGHUP")  # the last is not there on every system
# Seconds until a request to stop that got lost is made again.
_AGAIN = 0.01


@contextmanager
def stopped_alike() -> Iterator[None]:
    """Let all of these signals end a command at the same points, with the same words."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [getattr(signal, name) for name in _ASKED if hasattr(signal, name)]
    # A signal that is ignored stays so: nohup asks for it.
    before = {n: signal.getsignal(n) for n in numbers if signal.getsignal(n) != signal.SIG_IGN}
    for number in before:
        signal.signal(number, signal.default_int_handler)
    report, here, over = sys.unraisablehook, threading.get_ident(), threading.Event()

    def ask_again() -> None:
        if not over.wait(_AGAIN):
            signal.pthread_kill(here, min(before))

    def insist(lost: Any) -> None:
        # Raised where nothing can be caught, as in a destructor, the request would be forgotten.
        if issubclass(lost.exc_type, KeyboardInterrupt):
            threading.Thread(target=ask_again, daemon=True).start()
        else:
            report(lost)

    sys.unraisablehook = insist
    try:
        yield
    finally:
        over.set()
        sys.unraisablehook = report
        for number, handler in before.items():
            signal.signal(number, handler)
