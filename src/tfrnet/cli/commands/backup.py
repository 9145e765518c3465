"""`tfrnet backup`: a whole state as one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tfrnet.cli import options as opt
from tfrnet.cli.output import Output


def command(
    out: Annotated[Path, typer.Option(help="New file for the backup, a tar.")],
    state: opt.State = opt.DEFAULT_STATE,
    as_json: opt.AsJson = False,
) -> int:
    """Write a whole state to one file, checking every digest on the way.

    Another process may go on writing to the state meanwhile: the backup holds one moment of it.
    It also holds the key that lies in the state, so keep it as private as the state; only its owner
    can read it. 'tfrnet restore' makes a state of it again.
    """
    from tfrnet.state.backup import back_up

    output = Output(as_json)
    with output.waiting("backing up"):
        contents = back_up(state, out)
    size = out.stat().st_size
    output.say(
        f"backed up state {state} at generation {contents['generation']} to {out} "
        f"({len(contents['files'])} files, {size / 1e6:.1f} MB)"
    )
    output.result("backup", {"state": str(state), "out": str(out), "bytes": size} | contents)
    return 0
