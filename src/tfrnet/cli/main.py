"""The `tfrnet` command: how it begins and how it ends.

The imports here are few and quick: from the first moment on that matters, a signal ends it in the
same words, also while the rest is imported.
"""

from __future__ import annotations

import io
import os
import sys
import warnings
from typing import Any

from tfrnet.cli.signals import stopped_alike
from tfrnet.core.errors import InterruptError, TfrnetError, TfrnetWarning
from tfrnet.core.text import printable
from tfrnet.distributed.environment import launched_rank


def main() -> None:
    """Run the command line; a failure is one line on stderr and an exit code."""
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    _write_anything()
    try:
        with stopped_alike():
            from tfrnet.cli.app import run_app

            code = run_app(sys.argv[1:])
    except TfrnetError as error:
        _fail("; ".join(filter(None, (str(error), error.advice))), error.exit_code, error)
    except KeyboardInterrupt:
        _fail("interrupted", InterruptError.exit_code)
    except BrokenPipeError:
        # Whoever read our output is gone, so there is nobody to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        text = f"{error.strerror}: {error.filename}" if error.filename else str(error)
        _fail(text, 2, error)
    except Exception as error:
        if hasattr(error, "format_message"):  # a wrong option or argument, said by typer
            message = error.format_message()
            if not message:  # no argument at all: the help was shown instead
                sys.exit(2)
            _fail(f"{message} (see 'tfrnet --help' or 'tfrnet COMMAND --help')", 2)
        if type(error).__name__ == "Abort":
            _fail("interrupted", InterruptError.exit_code)
        if os.environ.get("TFRNET_DEBUG"):
            raise
        what = f"unexpected {type(error).__name__}: {error}"
        _fail(f"{what} (set TFRNET_DEBUG=1 for the traceback)", 2, error)
    if code == InterruptError.exit_code:  # some versions of typer swallow Ctrl-C
        _fail("interrupted", code)
    sys.exit(code if isinstance(code, int) else 0)


def _write_anything() -> None:
    """Escape what the encoding of a stream lacks: an id with an emoji is no reason to fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _fail(message: str, code: int, error: Exception | None = None) -> None:
    if launched_rank():
        # An error that all processes share is reported by the first; a failure here could make the
        # launcher kill it before it does.
        sys.exit(0 if getattr(error, "agreed", False) else code)
    line = printable(" ".join(message.split()))
    print(f"tfrnet: error: {line}", file=sys.stderr)
    sys.exit(code)


def _show_warning(message: Warning | str, category: type[Warning], *rest: Any) -> None:
    # Warnings of other packages are meant for developers, not for users of a command.
    if launched_rank():
        return
    if issubclass(category, TfrnetWarning) or os.environ.get("TFRNET_DEBUG"):
        print(f"tfrnet: warning: {printable(str(message))}", file=sys.stderr)
