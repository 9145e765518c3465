"""What a search has found so far, as data and in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tfrnet_bench.search.budget import budget
from tfrnet_bench.search.choice import OBJECTIVES, choose
from tfrnet_bench.search.plan import SearchPlan
from tfrnet_bench.search.rows import Row


def summary(rows: Sequence[Row], plan: SearchPlan) -> dict[str, Any]:
    """Return the budget of every method, and its best point by each objective."""
    return {"budget": budget(rows, plan)} | {
        objective: choose(rows, plan, objective) for objective in OBJECTIVES
    }


def trial_line(row: Row) -> str:
    """Say how one trial on one stream ended."""
    if "error" in row:
        return f"{row['key']} failed: {row['error'].strip().splitlines()[-1]}"
    if "late" in row:
        return f"{row['key']}: the time ended before the stream did; it begins again next time"
    last = row["checkpoints"][-1]
    heldout = ", ".join(f"{value:.1f}" for value in last["heldout"].values())
    return (
        f"{row['key']}: honest Trade-off {row['honest_trade_off']:.1f}, the paper's "
        f"{row['trade_off']:.1f}; at the end requested items {last['seen']:.1f} % right, held-out "
        f"{heldout}; {row['seconds']:.0f} s"
    )


def summary_lines(found: Mapping[str, Any], plan: SearchPlan) -> list[str]:
    """Say what every method was given, and what was best by each objective."""
    given = found["budget"]
    lines = [
        f"budget of every method: {given['trials']} of {plan.trials} trials, each "
        f"{len(plan.streams)} streams x {len(plan.seeds)} seeds x {plan.requests} requests"
    ]
    for objective in OBJECTIVES:
        best = sorted(found[objective].items(), key=lambda entry: -entry[1]["score"])
        lines.append(f"best by the {_TITLES[objective]}:")
        for name, point in best:
            settings = ", ".join(f"{key}={value}" for key, value in point["settings"].items())
            lines.append(
                f"  {name:<11} {point['score']:6.2f} (first {point['score_of_first']:.2f}): "
                f"{settings}"
            )
    return lines


def edge_lines(found: Mapping[str, Any]) -> list[str]:
    """Say where a best point lies on the edge of what was tried."""
    return [
        f"the best of {name} by the {_TITLES[objective]} lies on the edge: {edge}"
        for objective in OBJECTIVES
        for name, best in found[objective].items()
        for edge in best["edges"]
    ]


_TITLES = {"honest": "honest Trade-off", "paper": "paper's Trade-off"}
