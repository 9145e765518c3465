"""The hyper-parameter search: the same declared grid and number of trials for every method.

Tuning streams have seeds of their own; results are reported on others.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from tfrnet.core.errors import InputError
from tfrnet.data.protocol import STREAMS, Sizes, Split, make_split
from tfrnet.data.sources import Source
from tfrnet.models.load import LoadedModel, load_model
from tfrnet_bench.constants import FIRST_TUNING_SEED, UNTOUCHED
from tfrnet_bench.grid import grid, search_space
from tfrnet_bench.machine import Machine, prepare_process
from tfrnet_bench.trial import Trial, run_trial

Row = Mapping[str, Any]


@dataclass(frozen=True)
class SearchPlan:
    """What is searched, and on what."""

    methods: tuple[str, ...]
    streams: tuple[str, ...] = STREAMS
    seed: int = FIRST_TUNING_SEED
    requests: int = 5
    heldout: int = 100
    budget: int = 12
    model: str = "smollm2-tasks"
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if self.seed < FIRST_TUNING_SEED:
            raise InputError(
                f"seeds below {FIRST_TUNING_SEED} are for reporting; tune on another, "
                f"such as {FIRST_TUNING_SEED}"
            )
        for method in self.methods:
            search_space(method)

    def trials(self) -> list[Trial]:
        """Return all trials: the untouched model, then every method's first point, and so on."""
        points = {method: grid(method)[: self.budget] for method in self.methods}
        found = [
            Trial(UNTOUCHED, 0, {}, stream, self.seed, self.requests) for stream in self.streams
        ]
        for number in range(self.budget):
            for stream in self.streams:
                found += [
                    Trial(method, number, points[method][number], stream, self.seed, self.requests)
                    for method in self.methods
                    if number < len(points[method])
                ]
        return found

    def own(self, rows: Sequence[Row]) -> list[Row]:
        """Return the results that belong to this plan; a file may hold those of others too."""
        return [
            row
            for row in rows
            if (row["seed"], row["requests"]) == (self.seed, self.requests)
            and row["stream"] in self.streams
        ]

    def splits(self, source: Source) -> dict[str, Split]:
        """Return the tuning streams."""
        sizes = Sizes(requests=self.requests, forget_eval=self.requests * 8, heldout=self.heldout)
        return {name: make_split(name, self.seed, source, sizes) for name in self.streams}


def run_search(
    plan: SearchPlan,
    machine: Machine,
    results: Path,
    report: Callable[[Row], None],
    minutes: float | None = None,
) -> list[Row]:
    """Run the trials whose results are not in the file yet, adding each as it comes.

    No new trial starts after `minutes`.
    """
    done = read_rows(results)
    known = {row["key"] for row in plan.own(done)}
    todo = [trial for trial in plan.trials() if trial.key not in known]
    deadline = time.monotonic() + 60 * minutes if minutes is not None else None
    results.parent.mkdir(parents=True, exist_ok=True)
    _cut_torn_line(results)
    with results.open("a") as file:
        for row in _run(plan, machine, todo, deadline):
            file.write(json.dumps(row) + "\n")
            file.flush()
            done.append(row)
            report(row)
    return done


def read_rows(results: Path) -> list[Row]:
    """Return the results in a file; a last line without an end is what a crash leaves."""
    text = results.read_text() if results.is_file() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def _cut_torn_line(results: Path) -> None:
    data = results.read_bytes() if results.is_file() else b""
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        os.truncate(results, whole)


def choose(rows: Sequence[Row], plan: SearchPlan) -> dict[str, Any]:
    """Return each method's best point by its mean Trade-off over the streams.

    Every method is allowed as many points as the one with the fewest whole ones.
    """
    scores: dict[str, dict[int, dict[str, Row]]] = defaultdict(lambda: defaultdict(dict))
    for row in plan.own(rows):
        scores[row["method"]][row["point"]][row["stream"]] = row
    whole = {
        method: [p for p in range(plan.budget) if len(scores[method][p]) == len(plan.streams)]
        for method in plan.methods
    }
    allowed = min(len(points) for points in whole.values())
    if not allowed:
        lacking = next(method for method, points in whole.items() if not points)
        raise InputError(f"no point of {lacking} has a result on every stream yet")
    return {method: _best(scores[method], whole[method][:allowed]) for method in plan.methods}


def _best(points: Mapping[int, Mapping[str, Row]], allowed: Sequence[int]) -> dict[str, Any]:
    def mean(point: int) -> float:
        return fmean(row["trade_off"] for row in points[point].values())

    best = max(allowed, key=mean)
    first = next(iter(points[best].values()))
    return {
        "settings": dict(first["settings"]),
        "trade_off": mean(best),
        "trade_off_of_defaults": mean(allowed[0]),
        "by_stream": {name: row["trade_off"] for name, row in points[best].items()},
        "point": best,
        "points_tried": len(allowed),
    }


# Running

_here: tuple[LoadedModel, dict[str, Split], int] | None = None


def _start(plan: SearchPlan, machine: Machine) -> None:
    """Load what all trials of a process share."""
    global _here
    prepare_process(machine.device)
    splits = plan.splits(machine.source)  # first: data that is not there is noticed at once
    loaded = load_model(plan.model, plan.dtype, machine.device)
    _here = loaded, splits, machine.eval_batch_size


def _one(trial: Trial) -> dict[str, Any]:
    assert _here is not None
    loaded, splits, batch_size = _here
    return run_trial(loaded, trial, splits[trial.stream], batch_size)


def _run(
    plan: SearchPlan, machine: Machine, todo: Sequence[Trial], deadline: float | None
) -> Iterator[Row]:
    if not todo:
        return
    if machine.processes == 1:
        _start(plan, machine)
        for trial in todo:
            if deadline and time.monotonic() > deadline:
                return
            yield _one(trial)
        return
    context = multiprocessing.get_context("spawn")
    waiting = iter(todo)
    with ProcessPoolExecutor(
        machine.processes, context, initializer=_start, initargs=(plan, machine)
    ) as pool:
        # A few more than there are workers, so that none waits for the next.
        running: set[Future[dict[str, Any]]] = set()
        while True:
            while len(running) < machine.processes + 2:
                late = deadline is not None and time.monotonic() > deadline
                upcoming = None if late else next(waiting, None)
                if upcoming is None:
                    break
                running.add(pool.submit(_one, upcoming))
            if not running:
                return
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                yield future.result()
