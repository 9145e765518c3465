"""Tunes all methods alike, where only Python and torch are at hand: see notebook/tuning.md.

    python -m benchmarks.tune probe RESULTS --data-dir DATA --workers 16
    python -m benchmarks.tune search RESULTS --data-dir DATA --workers 16 --trials 4 --minutes 9

RESULTS is a folder. `probe` runs the first requests of one stream under every method, side by side,
and says how many trials fit into the minutes. `search` is `tfrnet search`: it adds a line to
RESULTS/trials.jsonl per stream and ends after the minutes; run again, it goes on, also from a copy
(--known FILE). A model may be given as an adapter on a base: --adapter FOLDER --model BASE.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from tfrnet.data.protocol import STREAMS
from tfrnet.data.sources import Source
from tfrnet.models.adapters import merged_adapter
from tfrnet_bench.machine import Machine
from tfrnet_bench.search.budget import cost_lines
from tfrnet_bench.search.choice import OBJECTIVES, trials_of_all
from tfrnet_bench.search.grid import searchable
from tfrnet_bench.search.plan import SearchPlan
from tfrnet_bench.search.rows import Row
from tfrnet_bench.search.run import run_search
from tfrnet_bench.search.summary import edge_lines, summary, summary_lines, trial_line

_USUAL_MINUTES = 8.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Probe or search, and say what was found."""
    options = _parser().parse_args(arguments)
    plan = _plan(options)
    machine = Machine(
        Source("folder", options.data_dir),
        options.device,
        batch_size=options.batch_size,
        eval_batch_size=options.eval_batch_size,
        workers=options.workers,
    )
    options.results.mkdir(parents=True, exist_ok=True)
    if options.what == "probe":
        probe(plan, machine, options.results, options.probe_requests, options.minutes)
    else:
        search(plan, machine, options.results, options.known, options.minutes, options.objective)


def probe(
    plan: SearchPlan, machine: Machine, results: Path, requests: int, minutes: float
) -> list[Row]:
    """Measure every method's defaults on a few requests of one stream; say how many trials fit."""
    short = replace(plan, streams=plan.streams[-1:], requests=requests, trials=1)
    rows = run_search(short, machine, results / "probe.jsonl", _say)
    for line in cost_lines(rows, plan, machine.processes, minutes):
        print(line)
    return rows


def search(
    plan: SearchPlan,
    machine: Machine,
    results: Path,
    known: Path | None,
    minutes: float,
    objective: str,
) -> list[Row]:
    """Go on with the search for some minutes, and say what is known then."""
    file = results / "trials.jsonl"
    if known and not file.exists():
        shutil.copyfile(known, file)
    leading = next(name for name in OBJECTIVES if name == objective)
    rows = run_search(plan, machine, file, _say, minutes, leading)
    for line in cost_lines(plan.own(rows), plan, machine.processes, _USUAL_MINUTES):
        print(line)
    done = len([row for row in plan.own(rows) if row["method"] != "none"])
    print(f"{done} streams of {plan.cells - len(plan.places)} are done")
    if not trials_of_all(rows, plan):
        print("no trial is whole for every method yet; run it again")
        return rows
    found = summary(rows, plan)
    (results / "chosen.json").write_text(json.dumps(found, indent=1) + "\n")
    for line in summary_lines(found, plan):
        print(line)
    for line in edge_lines(found):
        print(f"warning: {line}")
    return rows


def _say(row: Row) -> None:
    print(trial_line(row), flush=True)


def _plan(options: argparse.Namespace) -> SearchPlan:
    model = options.model
    if options.adapter:
        model = str(merged_adapter(options.adapter, model))
    return SearchPlan(
        methods=tuple(options.methods.split(",")) if options.methods else tuple(searchable()[0]),
        streams=tuple(options.streams.split(",")),
        seeds=tuple(map(int, options.seeds.split(","))),
        requests=options.requests,
        heldout=options.heldout,
        trials=options.trials,
        model=model,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("probe", "search"))
    parser.add_argument("results", type=Path)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--known", type=Path, help="trials of before, to go on from")
    parser.add_argument("--model", default="smollm2-tasks", help="or, with --adapter, its base")
    parser.add_argument("--adapter", type=Path)
    parser.add_argument("--methods", default="", help="separated by commas; all without")
    parser.add_argument("--streams", default=",".join(STREAMS))
    parser.add_argument("--seeds", default="1000,1001")
    parser.add_argument("--requests", type=int, default=20)
    parser.add_argument("--heldout", type=int, default=100)
    parser.add_argument("--trials", type=int, default=12, help="of every method")
    parser.add_argument("--objective", choices=OBJECTIVES, default="honest")
    parser.add_argument("--probe-requests", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=_USUAL_MINUTES)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--eval-batch-size", type=int, default=128)
    parser.add_argument("--device", default="auto")
    return parser


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
