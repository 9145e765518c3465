"""The subcommands of `tfrnet`: the files of `commands/`, and entry points."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import typer

import tfrnet
from tfrnet.cli.sharing import is_shared
from tfrnet.core.errors import InputError
from tfrnet.core.registry import Registry
from tfrnet.distributed.environment import launched_rank

# What a newcomer needs first.
_FIRST = """\
tfrnet: continual unlearning for language models. Five commands to begin with:

  tfrnet demo                      watch a real model forget, in minutes
  tfrnet init                      write a small example to start from
  tfrnet run --stream requests.jsonl --retain retain.jsonl
                                   apply your own deletion requests
  tfrnet generate --prompt "..."   the model's answers, before and after
  tfrnet export --out unlearned    the unlearned model for other programs

'tfrnet rollback --to 0' undoes everything. 'tfrnet --help' lists all commands, and
'tfrnet COMMAND --help' explains one."""

COMMANDS = Registry("command", "tfrnet.cli.commands", "tfrnet.commands", "command")
# How the help groups the commands, each in the order a newcomer needs them.
_GROUPS = {
    "Begin": ("demo", "init", "generate", "chat"),
    "Forget and undo": ("forget", "run", "rollback", "settings", "anchors", "split-text"),
    "Look at a state": ("status", "history", "report", "audit"),
    "Prove": ("verify", "certificate", "head", "key"),
    "Keep a state safe": ("backup", "restore", "prune", "repair"),
    "Take it along": ("export", "import", "ask"),
    "Serve": ("serve", "request", "token"),
    "Measure and compare": ("eval", "split", "prepare", "search", "bench", "cache"),
}
OTHERS = "From other packages"


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
                app.add_typer(found, name=name, rich_help_panel=group_of(name))
            else:
                app.command(name, rich_help_panel=group_of(name))(found)
        except InputError as error:
            # A broken command of another package must not break ours.
            any_options = {"ignore_unknown_options": True, "allow_extra_args": True}
            app.command(name, help=str(error), context_settings=any_options)(_refusing(error))
    return app


def _refusing(error: InputError) -> Callable[[], None]:
    def command() -> None:
        raise error

    return command


def group_of(name: str) -> str:
    """Return the heading under which the help lists a command."""
    return next((group for group, names in _GROUPS.items() if name in names), OTHERS)


def _rank(name: str) -> tuple[int, str]:
    known = [each for names in _GROUPS.values() for each in names]
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


def run_app(arguments: Sequence[str]) -> object:
    """Run the command that is asked for and return its exit code; what goes wrong is raised."""
    asked = arguments[0] if arguments else ""
    if launched_rank() and not _is_shared(asked):
        return 0  # the first process does it all
    if not arguments:
        typer.echo(_FIRST)
        return 0
    return build_app(asked)(arguments, standalone_mode=False)


def _is_shared(name: str) -> bool:
    return name in COMMANDS.names() and is_shared(COMMANDS.find(name))
