"""`tfrnet restore`: a state from a backup."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tfrnet.cli import options as opt
from tfrnet.cli.output import Output


def command(
    backup: Annotated[Path, typer.Argument(metavar="FILE", help="File made by 'tfrnet backup'.")],
    state: opt.State = opt.DEFAULT_STATE,
    as_json: opt.AsJson = False,
) -> int:
    """Make a state from a backup, in a new or empty folder.

    Every digest of the backup is checked before anything is written. What was requested after
    the backup was made is not in it: run those requests again.
    """
    from tfrnet.state.restore import restore

    output = Output(as_json)
    with output.waiting("restoring"):
        contents = restore(backup, state)
    output.say(
        f"restored state {state} at generation {contents['generation']} from {backup} "
        f"({len(contents['files'])} files, every digest as listed)"
    )
    output.result("restore", {"state": str(state), "backup": str(backup)} | contents)
    return 0
