"""`tfrnet search`: the hyper-parameter search, the same for every method."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from tfrnet.cli import options as opt
from tfrnet.cli.lists import names
from tfrnet.cli.output import Output
from tfrnet_bench.commands import bench_options


def command(
    out: Annotated[
        Path, typer.Option(help="Folder for trials.jsonl, one line per trial, and chosen.json.")
    ] = Path("tfrnet-search"),
    methods: bench_options.Methods = "",
    streams: bench_options.Streams = "",
    seed: Annotated[int, typer.Option(help="Seed of the tuning streams, at least 1000.")] = 1000,
    requests: Annotated[int, typer.Option(min=1, help="Requests per trial.")] = 5,
    heldout: Annotated[int, typer.Option(min=1, help="Held-out items per task.")] = 100,
    budget: Annotated[int, typer.Option(min=1, max=12, help="Grid points per method.")] = 12,
    model: bench_options.Backbone = "smollm2-tasks",
    workers: Annotated[int, typer.Option(min=1, help="Trials to run at the same time.")] = 1,
    minutes: bench_options.Minutes = None,
    batch_size: bench_options.EvalBatchSize = 64,
    data_dir: opt.DataDir = None,
    source: opt.DataSource = "auto",
    dtype: opt.Dtype = "float32",
    device: opt.Device = "auto",
    as_json: opt.AsJson = False,
) -> int:
    """Search for the best settings of every method, with the same grid and budget for all.

    A trial applies the first requests of a tuning stream in memory and measures the Trade-off
    between what is forgotten and what still works on held-out items. A method that declares no
    search space is left out. You can stop at any time; run the same command again to continue.
    """
    from tfrnet.data.protocol import STREAMS
    from tfrnet.data.sources import Source
    from tfrnet_bench.grid import searchable
    from tfrnet_bench.machine import Machine
    from tfrnet_bench.search import SearchPlan, choose, run_search

    output = Output(as_json)
    chosen_methods = names(methods)
    if not chosen_methods:
        can_be, cannot = searchable()
        chosen_methods = tuple(can_be)
        for name in cannot:
            output.note(f"{name} is left out: it declares no search_space")
    plan = SearchPlan(
        methods=chosen_methods,
        streams=names(streams) or STREAMS,
        seed=seed,
        requests=requests,
        heldout=heldout,
        budget=budget,
        model=model,
        dtype=dtype,
    )
    machine = Machine(Source(source, data_dir), device, eval_batch_size=batch_size, workers=workers)
    trials = plan.trials()
    with output.progress(len(trials), "trials") as bar:

        def report(row: Mapping[str, Any]) -> None:
            bar.advance()
            output.say(
                f"{row['key']}: forget accuracy {row['forget_accuracy']:.1f}, held-out "
                f"{', '.join(f'{v:.1f}' for v in row['heldout_accuracy'].values())}, "
                f"Trade-off {row['trade_off']:.2f}, {row['seconds']:.1f} s"
            )

        rows = run_search(plan, machine, out / "trials.jsonl", report, minutes)
    wanted = {trial.key for trial in trials}
    done = sum(row["key"] in wanted for row in plan.own(rows))
    if done < len(trials):
        output.say(f"{done} of {len(trials)} trials are done; run the same command to continue")
    chosen = choose(rows, plan)
    (out / "chosen.json").write_text(json.dumps(chosen, indent=1) + "\n")
    for name, best in sorted(chosen.items(), key=lambda entry: -entry[1]["trade_off"]):
        settings = ", ".join(f"{key}={value}" for key, value in best["settings"].items())
        output.say(
            f"{name:<11} Trade-off {best['trade_off']:.2f} (defaults "
            f"{best['trade_off_of_defaults']:.2f}) of {best['points_tried']} points: {settings}"
        )
    output.result("search", {"out": str(out), "trials": done, "chosen": chosen})
    return 0
