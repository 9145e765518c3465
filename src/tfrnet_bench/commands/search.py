"""`tfrnet search`: the hyper-parameter search, the same for every method."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from tfrnet.cli import options as opt
from tfrnet.cli.lists import names, numbers
from tfrnet.cli.output import Output
from tfrnet_bench.commands import bench_options


def command(
    out: Annotated[
        Path, typer.Option(help="Folder for trials.jsonl, one line per trial, and chosen.json.")
    ] = Path("tfrnet-search"),
    methods: bench_options.Methods = "",
    streams: bench_options.Streams = "",
    seeds: Annotated[
        str,
        typer.Option(
            help="Seeds of the tuning streams, at least 1000, separated by commas.",
        ),
    ] = "1000,1001",
    requests: Annotated[int, typer.Option(min=1, help="Requests per stream.")] = 20,
    heldout: Annotated[int, typer.Option(min=1, help="Held-out items per task.")] = 100,
    trials: Annotated[
        int, typer.Option(min=1, help="Settings to try per method, the same number for each.")
    ] = 12,
    objective: Annotated[
        str,
        typer.Option(
            help="Score that guides the search: honest (requested items only, floored at "
            "chance) or paper (the paper's)."
        ),
    ] = "honest",
    model: bench_options.Backbone = "smollm2-tasks",
    workers: Annotated[int, typer.Option(min=1, help="Trials to run at the same time.")] = 1,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Stop after this many minutes.", show_default=False)
    ] = None,
    batch_size: bench_options.EvalBatchSize = 64,
    data_dir: opt.DataDir = None,
    source: opt.DataSource = "auto",
    dtype: opt.Dtype = "float32",
    device: opt.Device = "auto",
    trust_remote_code: opt.TrustRemoteCode = False,
    as_json: opt.AsJson = False,
) -> int:
    """Search for the best settings of every method, with the same number of trials for all.

    A trial is one point of a method's grid on whole streams: every stream with every tuning seed.
    The first is where an earlier search ended, or the defaults; a third of the trials is spread
    over the grid, and the others go next to the best so far. A warning says where the best point
    lies on the edge of what was tried. A method that declares no search space is left out. You can
    stop at any time; run the same command again to continue, also with more trials.
    """
    from tfrnet.core.errors import InputError
    from tfrnet.data.protocol import STREAMS
    from tfrnet.data.sources import Source
    from tfrnet_bench.machine import Machine
    from tfrnet_bench.search.choice import OBJECTIVES
    from tfrnet_bench.search.grid import searchable
    from tfrnet_bench.search.plan import SearchPlan
    from tfrnet_bench.search.run import run_search
    from tfrnet_bench.search.summary import edge_lines, summary, summary_lines, trial_line

    output = Output(as_json)
    leading = next((name for name in OBJECTIVES if name == objective), None)
    if leading is None:
        raise InputError(f"--objective must be {' or '.join(OBJECTIVES)}, not {objective!r}")
    chosen_methods = names(methods)
    if not chosen_methods:
        can_be, cannot = searchable()
        chosen_methods = tuple(can_be)
        for name in cannot:
            output.note(f"{name} is left out: it declares no search_space")
    plan = SearchPlan(
        methods=chosen_methods,
        streams=names(streams) or STREAMS,
        seeds=numbers(seeds, "--seeds", "1000,1001"),
        requests=requests,
        heldout=heldout,
        trials=trials,
        model=model,
        dtype=dtype,
    )
    machine = Machine(
        Source(source, data_dir),
        device,
        eval_batch_size=batch_size,
        workers=workers,
        trust_remote_code=trust_remote_code,
    )
    failed = 0
    with output.progress(plan.cells, "streams") as bar:

        def report(row: Mapping[str, Any]) -> None:
            nonlocal failed
            failed += "error" in row
            bar.advance()
            output.say(trial_line(row))

        rows = run_search(plan, machine, out / "trials.jsonl", report, minutes, leading)
    found = summary(rows, plan)
    (out / "chosen.json").write_text(json.dumps(found, indent=1) + "\n")
    for line in summary_lines(found, plan):
        output.say(line)
    for line in edge_lines(found):
        output.note(f"warning: {line}")
    output.result("search", {"out": str(out), **found})
    return 1 if failed else 0
