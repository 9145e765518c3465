"""The `tfrnet` command. Its subcommands are the files of `commands/` and entry points."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

import typer

import tfrnet
from tfrnet.cli.sharing import is_shared
from tfrnet.cli.signals import stopped_alike
from tfrnet.core.errors import InputError, InterruptError, TfrnetError, TfrnetWarning
from tfrnet.core.registry import Registry
from tfrnet.core.text import printable
from tfrnet.distributed.environment import launched_rank

# What a newcomer needs first.
_FIRST = """\
tfrnet: continual unlearning for language models. Six commands to begin with:

  tfrnet demo                      watch a real model forget, in minutes
  tfrnet init                      write a small example to start from
  tfrnet run --stream requests.jsonl --retain retain.jsonl
                                   apply your own deletion requests
  tfrnet generate --prompt "..."   the model's answers, before and after
  tfrnet rollback --to 0           undo
  tfrnet export --out unlearned    the unlearned model for other programs

'tfrnet --help' lists all commands, 'tfrnet COMMAND --help' explains one."""

COMMANDS = Registry("command", "tfrnet.cli.commands", "tfrnet.commands", "command")


def build_app(asked: str = "") -> typer.Typer:
    """Collect the subcommands, or only the one asked for, which is quicker.

    None of them imports torch before it runs.
    """
    app = typer.Typer(
        help="Continual unlearning for language models: apply deletion requests one after another, "
        "resumable and undoable. The default method, TFR-Net, puts a mask over channels, leaves "
        "the weights as they are and checks each request with a guard; other methods train weights "
        "or an adapter.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback()(_options)
    known = COMMANDS.names()
    for name in [asked] if asked in known else sorted(known, key=_rank):
        try:
            found = COMMANDS.find(name)
            if isinstance(found, typer.Typer):  # a command with commands of its own
                app.add_typer(found, name=name)
            else:
                app.command(name)(found)
        except InputError as error:
            # A broken command of another package must not break ours.
            any_options = {"ignore_unknown_options": True, "allow_extra_args": True}
            app.command(name, help=str(error), context_settings=any_options)(_refusing(error))
    return app


def _refusing(error: InputError) -> Callable[[], None]:
    def command() -> None:
        raise error

    return command


def _rank(name: str) -> tuple[int, str]:
    """Return where a command stands in the help: in the order a newcomer needs them."""
    known = ["demo", "init", "generate", "chat", "forget", "run", "status", "history", "verify"]
    known += ["rollback", "eval"]
    return (known.index(name) if name in known else len(known), name)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tfrnet {tfrnet.__version__}")
        raise typer.Exit


def _options(
    version: bool = typer.Option(
        False, "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    """Define the options that come before a subcommand."""


def main() -> None:
    """Run the command line; a failure is one line on stderr and an exit code."""
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    if launched_rank() and not _is_shared(*sys.argv[1:2]):
        sys.exit(0)  # the first process does it all
    if len(sys.argv) == 1:
        typer.echo(_FIRST)
        sys.exit(0)
    try:
        with stopped_alike():
            code = build_app(*sys.argv[1:2])(standalone_mode=False)
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


def _is_shared(name: str = "") -> bool:
    return name in COMMANDS.names() and is_shared(COMMANDS.find(name))


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
