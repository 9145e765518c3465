"""What a search costs: what each method was given, and how much fits into some minutes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from tfrnet.core.search_space import Point
from tfrnet_bench.search.choice import trials_of_all
from tfrnet_bench.search.grid import spread
from tfrnet_bench.search.plan import SearchPlan
from tfrnet_bench.search.rows import Row


@dataclass(frozen=True)
class Cost:
    """Seconds of one process: a request, measuring once, and so a whole stream."""

    request: float
    measuring: float
    stream: float


def budget(rows: Sequence[Row], plan: SearchPlan) -> dict[str, Any]:
    """Return what every method was given alike, and the seconds that each took of it."""
    own = plan.own(rows)
    return {
        "trials": trials_of_all(rows, plan),
        "spread": plan.spread_trials,
        "streams": list(plan.streams),
        "seeds": list(plan.seeds),
        "requests": plan.requests,
        "heldout": plan.heldout,
        "model": plan.model,
        "dtype": plan.dtype,
        "seconds": {
            method: round(sum(row["seconds"] for row in own if row["method"] == method), 1)
            for method in plan.methods
        },
    }


def costs(rows: Sequence[Row], plan: SearchPlan) -> dict[str, Cost]:
    """Return what a stream of the plan costs each method, from its trials on streams of any length.

    A request takes as long as it has steps: those of the plan's points may be more or fewer than
    those that were measured.
    """
    found = {}
    alike = plan.alike(rows)
    for method in plan.methods:
        own = [row for row in alike if row["method"] == method]
        if own:
            planned = _steps(spread(method, plan.spread_trials))
            more = planned / _steps([row["settings"] for row in own])
            request = more * fmean(row["unlearning_seconds"] / row["requests"] for row in own)
            measuring = fmean(
                (row["seconds"] - row["unlearning_seconds"]) / (len(row["checkpoints"]) - 1)
                for row in own
            )
            stream = plan.requests * request + len(plan.checkpoints) * measuring
            found[method] = Cost(request, measuring, stream)
    return found


def _steps(points: Sequence[Point]) -> float:
    return fmean(point.get("steps", 1) for point in points)


def trials_that_fit(
    known: Mapping[str, Cost], plan: SearchPlan, processes: int, minutes: float
) -> float:
    """Return how many trials of every method fit into some minutes of all processes."""
    one = sum(cost.stream for cost in known.values()) * len(plan.places)
    return 60 * minutes * processes / one


def cost_lines(rows: Sequence[Row], plan: SearchPlan, processes: int, minutes: float) -> list[str]:
    """Say what was measured, and how many trials fit."""
    known = costs(rows, plan)
    lines = [
        f"{name:<11} {cost.request:6.2f} s a request, {cost.measuring:6.2f} s to measure, "
        f"{cost.stream:7.1f} s a stream"
        for name, cost in known.items()
    ]
    missing = [name for name in plan.methods if name not in known]
    if missing:
        return [*lines, f"not measured yet: {', '.join(missing)}"]
    fit = trials_that_fit(known, plan, processes, minutes)
    return [
        *lines,
        f"{fit:.2f} trials of every method ({len(plan.places)} streams each) fit into "
        f"{minutes:g} minutes of {processes} processes",
    ]
