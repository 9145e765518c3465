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


def command(
    out: Annotated[
        Path, typer.Option(help="Folder for trials.jsonl, one line a trial, and chosen.json.")
    ] = Path("tfrnet-search"),
    methods: Annotated[
        str,
        typer.Option(
            help="Methods, comma-separated; without it all that say what to search.",
            show_default=False,
        ),
    ] = "",
    streams: Annotated[
        str, typer.Option(help="Streams, comma-separated.")
    ] = "arithmetic,openbookqa,boolq",
    seed: Annotated[int, typer.Option(help="Seed of the tuning streams, 1000 or more.")] = 1000,
    requests: Annotated[int, typer.Option(min=1, help="Requests applied in a trial.")] = 5,
    heldout: Annotated[int, typer.Option(min=1, help="Held-out items of each task.")] = 100,
    budget: Annotated[int, typer.Option(min=1, max=12, help="Points tried per method.")] = 12,
    model: Annotated[str, typer.Option(help="Backbone that knows the tasks.")] = "smollm2-tasks",
    workers: Annotated[int, typer.Option(min=1, help="Trials run at a time on one GPU.")] = 1,
    minutes: Annotated[
        float | None,
        typer.Option(help="Begin no trial after so many minutes.", show_default=False),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Sequences per evaluation pass.")] = 64,
    data_dir: opt.DataDir = None,
    source: opt.DataSource = "auto",
    dtype: opt.Dtype = "float32",
    device: opt.Device = "auto",
    as_json: opt.AsJson = False,
) -> int:
    """Search settings for every method on tuning streams: one grid, one budget for all.

    A trial applies the first requests of a stream in memory and measures the Trade-off of what was
    forgotten and what held-out items still work. Stop it at any time; the same command goes on.
    """
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
        streams=names(streams),
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
        output.say(f"{done} of {len(trials)} trials are done; the same command goes on")
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
