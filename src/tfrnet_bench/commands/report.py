"""`tfrnet report`: a bench run or a state as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tfrnet.cli import options as opt
from tfrnet.cli.output import Output
from tfrnet.core import files


def command(
    run: Annotated[Path, typer.Argument(help="Folder of a bench run or of a state.")],
    out: Annotated[
        Path | None,
        typer.Option(help="HTML file to write.", show_default="RUN/report.html"),
    ] = None,
    texts: Annotated[
        Path | None,
        typer.Option(
            help="Show these answers before and after: a file with what 'tfrnet generate --state "
            "... --json' printed. Whoever reads the page reads their words.",
            show_default=False,
        ),
    ] = None,
    as_json: opt.AsJson = False,
) -> int:
    """Write a self-contained HTML page with the tables, charts and texts of a run or a state.

    The page of a state shows no words of requests or answers unless you give them with --texts.
    """
    from tfrnet_bench.report import make_report
    from tfrnet_bench.report.answers_file import read_answers

    output = Output(as_json)
    with output.waiting("writing the report"):
        page = make_report(run, read_answers(texts) if texts else ())
        # In a state's folder it is for its owner alone, like everything else there.
        mode = files.PRIVATE if out is None and page.kind == "state" else 0o644
        target = page.write(out or run / "report.html", mode)
    size = target.stat().st_size
    output.say(f"wrote {target} ({page.words}; {size / 1e3:.0f} kB)")
    output.result(
        "report",
        {"run": str(run), "kind": page.kind, "out": str(target), "bytes": size} | page.counts,
    )
    return 0
