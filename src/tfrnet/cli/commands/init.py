"""`tfrnet init`: a small example folder to start from."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from tfrnet.cli import options as opt
from tfrnet.cli.output import Output


def command(
    folder: Annotated[
        Path, typer.Argument(help="Folder to write; made if it is not there.")
    ] = Path("tfrnet-example"),
    as_json: opt.AsJson = False,
) -> int:
    """Write a small example to start from: requests, retain, guard and hold-out data.

    README.txt in the folder says what to do with them. No model is needed for this.
    """
    from tfrnet.demo.starter import NOTES, write_starter

    output = Output(as_json)
    written = write_starter(folder)
    for path in written:
        output.say(f"wrote {path}")
    output.say(f"next: cd {shlex.quote(str(folder))} && cat {NOTES}")
    output.result("init", {"folder": str(folder), "files": [path.name for path in written]})
    return 0
