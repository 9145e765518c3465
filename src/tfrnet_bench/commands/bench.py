"""`tfrnet bench`: the paper's experiments."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tfrnet.cli import options as opt
from tfrnet.cli.lists import names, numbers
from tfrnet.cli.output import Output
from tfrnet_bench.commands import bench_options

if TYPE_CHECKING:
    from tfrnet_bench.run.plan import BenchPlan
    from tfrnet_bench.run.runner import Tally


def command(
    experiments: Annotated[
        list[str],
        typer.Argument(
            help="main (all methods on the streams), ablation (TFR-Net without its parts), "
            "tofu (privacy and utility), structure (which channels are used), robust (attacks), "
            "lume and knowundo (private data of made-up people). 'all' means all but these two."
        ),
    ],
    out: Annotated[
        Path, typer.Option(help="Folder for the results: cells, tables, figures and report.html.")
    ] = Path("tfrnet-bench"),
    methods: bench_options.Methods = "",
    streams: bench_options.Streams = "",
    seeds: Annotated[
        str,
        typer.Option(help="Seeds below 1000, separated by commas.", show_default="0,1,2"),
    ] = "",
    preset: Annotated[
        str,
        typer.Option(
            help="Settings of the methods: tuned (found by our search; deep for tfr), default or "
            "published."
        ),
    ] = "tuned",
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Check that everything works, in a few minutes on a CPU: two small requests, a "
            "few items, one seed, and unless you name others the methods ga and tfr on the "
            "arithmetic stream. The numbers mean nothing.",
        ),
    ] = False,
    model: bench_options.Backbone = "smollm2-tasks",
    tofu_model: Annotated[
        str,
        typer.Option(
            help="Model that knows TOFU.",
            show_default="smollm2-tofu-full; smollm2-tofu-chat-full for the chat form",
        ),
    ] = "",
    oracle: Annotated[
        str,
        typer.Option(
            help="Model that was trained without TOFU's forget set.",
            show_default="smollm2-tofu-retain90; smollm2-tofu-chat-retain90 for the chat form",
        ),
    ] = "",
    lume_model: Annotated[str, typer.Option(help="Model that knows LUME.")] = "smollm2-lume",
    knowundo_model: Annotated[
        str, typer.Option(help="Model that knows KnowUnDo.")
    ] = "smollm2-knowundo",
    tofu_forget: Annotated[
        str, typer.Option(help="TOFU's forget set: 01, 05 or 10 (2, 10 or 20 authors).")
    ] = "10",
    tofu_template: Annotated[
        str, typer.Option(help="Form of TOFU's prompts: qa ('Question: ... Answer: ') or chat.")
    ] = "qa",
    task_oracle: Annotated[
        str,
        typer.Option(
            help="Model trained without anything the streams forget (prepare --without); main "
            "then measures how far each method is from it. {seed} and {stream} in its name stand "
            "for these, where each has its own.",
            show_default="none",
        ),
    ] = "",
    lume_oracle: Annotated[str, typer.Option(help="The same for LUME.", show_default="none")] = "",
    knowundo_oracle: Annotated[
        str, typer.Option(help="The same for KnowUnDo.", show_default="none")
    ] = "",
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of processes, spread over the available GPUs.",
            show_default="one per GPU",
        ),
    ] = None,
    minutes: bench_options.Minutes = None,
    batch_size: Annotated[
        int,
        typer.Option(min=1, help="Examples per pass of a method; affects only speed and rounding."),
    ] = 8,
    eval_batch_size: bench_options.EvalBatchSize = 64,
    data_dir: opt.DataDir = None,
    source: opt.DataSource = "auto",
    dtype: opt.Dtype = "float32",
    device: opt.Device = "auto",
    trust_remote_code: opt.TrustRemoteCode = False,
    as_json: opt.AsJson = False,
) -> int:
    """Run the paper's experiments, and write their tables, figures and a report.

    The run consists of cells: one for each method, stream and seed, each with its own folder. You
    can stop at any time; the same command continues the run and repeats a cell only if its inputs
    have changed. Start the same command in another shell to share the work. If a cell fails, its
    error.json says why, the other cells continue and the exit code is 1; the next run tries it
    again.

    Examples:

      tfrnet bench main --quick --data-dir data

      tfrnet bench all --data-dir data --workers 12 --out results
    """
    from tfrnet.data.sources import Source
    from tfrnet_bench.machine import Machine
    from tfrnet_bench.outputs import write_outputs
    from tfrnet_bench.run.plan_record import record_plan
    from tfrnet_bench.run.preflight import check_everything
    from tfrnet_bench.run.runner import run_bench
    from tfrnet_bench.run.worker import Event

    output = Output(as_json)
    where = Source(source, data_dir)
    plan = _plan(
        experiments,
        quick,
        {
            "methods": names(methods),
            "streams": names(streams),
            "seeds": numbers(seeds, "--seeds", "0,1,2"),
            "preset": preset,
            "model": model,
            "tofu_model": tofu_model,
            "oracle": oracle,
            "lume_model": lume_model,
            "knowundo_model": knowundo_model,
            "task_oracle": task_oracle,
            "lume_oracle": lume_oracle,
            "knowundo_oracle": knowundo_oracle,
            "dtype": dtype,
        },
        {"forget": tofu_forget, "template": tofu_template},
    )
    with output.waiting("looking for data and models"):
        check_everything(plan, where, trust_remote_code)
    machine = Machine(where, device, batch_size, eval_batch_size, workers, trust_remote_code)
    record_plan(out, plan)
    cells = plan.cells()
    with output.progress(len(cells), "cells") as bar:

        def report(event: Event) -> None:
            if event.kind == "now":
                bar.stage(event.text)
            elif event.kind in ("done", "failed"):
                bar.advance()
                word = "" if event.kind == "done" else "failed: "
                output.say(f"{event.key}: {word}{event.text} ({event.seconds:.0f} s)")

        tally = run_bench(plan, machine, out, report, minutes)
    _say_end(output, tally)
    written = write_outputs(out)
    for folder in sorted({path.parent for path in written}):
        count = sum(path.parent == folder for path in written)
        output.say(f"wrote {count} {'file' if count == 1 else 'files'} to {folder}")
    output.result(
        "bench",
        {"out": str(out), "cells": asdict(tally), "written": [str(path) for path in written]},
    )
    return 1 if tally.failed else 0


def _plan(
    experiments: list[str], quick: bool, options: dict[str, Any], tofu: dict[str, Any]
) -> BenchPlan:
    from tfrnet_bench.run.plan import ALL, BenchPlan, TofuSizes
    from tfrnet_bench.run.quick import QUICK

    named = (ALL if name == "all" else (name,) for name in experiments)
    chosen = tuple(dict.fromkeys(name for names in named for name in names))
    given = {name: value for name, value in options.items() if value}
    usual = {"tofu": TofuSizes()} | (QUICK if quick else {})
    sizes = usual["tofu"].on(**tofu)
    full, rest = sizes.models
    usual |= {"tofu": sizes, "tofu_model": full, "oracle": rest}
    return BenchPlan(experiments=chosen, **(usual | given))


def _say_end(output: Output, tally: Tally) -> None:
    output.say(
        f"{len(tally.done) + len(tally.kept)} of {tally.total} cells are finished"
        + (f", {len(tally.kept)} of them by earlier runs" if tally.kept else "")
        + (f", {len(tally.failed)} failed" if tally.failed else "")
        + (f", {len(tally.left)} are left; run the same command to continue" if tally.left else "")
    )
    for key, error in tally.failed.items():
        output.note(f"{key} failed: {error}")
