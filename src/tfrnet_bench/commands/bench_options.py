"""Options that several of these commands have in common."""

from __future__ import annotations

from typing import Annotated

import typer

from tfrnet.method import method_names

Methods = Annotated[
    str,
    typer.Option(
        help=f"Methods, separated by commas: {', '.join(method_names())}.", show_default="all"
    ),
]
Streams = Annotated[
    str,
    typer.Option(help="Tasks to forget, separated by commas.", show_default="the paper's three"),
]
Backbone = Annotated[str, typer.Option(help="Model that knows the tasks.")]
EvalBatchSize = Annotated[int, typer.Option(min=1, help="Sequences per evaluation pass.")]
Minutes = Annotated[
    float | None,
    typer.Option(min=0, help="Stop starting new work after this many minutes.", show_default=False),
]
