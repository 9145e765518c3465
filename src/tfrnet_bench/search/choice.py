"""Which point of each method is best, and whether it lies inside what was tried."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, Literal, get_args

from tfrnet.core.errors import InputError
from tfrnet_bench.search.grid import edges
from tfrnet_bench.search.plan import Place, SearchPlan
from tfrnet_bench.search.rows import Row

Objective = Literal["honest", "paper"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
_FIELD = {"honest": "honest_trade_off", "paper": "trade_off"}

# The rows of a point, by stream and seed.
Rows = Mapping[Place, Row]


def by_point(rows: Sequence[Row], plan: SearchPlan) -> dict[str, dict[int, dict[Place, Row]]]:
    """Return the plan's rows by method, number of the point, stream and seed."""
    found: dict[str, dict[int, dict[Place, Row]]] = defaultdict(lambda: defaultdict(dict))
    for row in plan.own(rows):
        found[row["method"]][row["point"]][row["stream"], row["seed"]] = row
    return found


def score(rows: Rows, objective: Objective) -> float:
    """Return a point's mean score."""
    return fmean(row[_FIELD[objective]] for row in rows.values())


def trials_of_all(rows: Sequence[Row], plan: SearchPlan) -> int:
    """Return how many whole trials every method has: the budget of each."""
    found = by_point(rows, plan)
    return min(len(_whole(found[method], plan)) for method in plan.methods)


def choose(
    rows: Sequence[Row], plan: SearchPlan, objective: Objective = "honest"
) -> dict[str, Any]:
    """Return each method's best point by its mean score over streams and seeds.

    Every method is allowed as many points as the one with the fewest whole ones.
    """
    found = by_point(rows, plan)
    allowed = trials_of_all(rows, plan)
    if not allowed:
        lacking = next(m for m in plan.methods if not _whole(found[m], plan))
        raise InputError(f"no point of {lacking} has a result on every stream and seed yet")
    return {
        method: _best(method, found[method], _whole(found[method], plan)[:allowed], objective)
        for method in plan.methods
    }


def _whole(points: Mapping[int, Rows], plan: SearchPlan) -> list[int]:
    return [number for number in sorted(points) if len(points[number]) == len(plan.places)]


def _best(
    method: str, points: Mapping[int, Rows], allowed: Sequence[int], objective: Objective
) -> dict[str, Any]:
    best = max(allowed, key=lambda number: score(points[number], objective))
    settings = {number: _settings(points[number]) for number in allowed}
    streams: dict[str, list[float]] = defaultdict(list)
    for (stream, _), row in points[best].items():
        streams[stream].append(row[_FIELD[objective]])
    return {
        "settings": settings[best],
        "score": score(points[best], objective),
        "score_of_first": score(points[allowed[0]], objective),
        "by_stream": {name: fmean(values) for name, values in streams.items()},
        "point": best,
        "points_tried": len(allowed),
        "edges": edges(method, settings[best], list(settings.values())),
    }


def _settings(rows: Rows) -> dict[str, Any]:
    return dict(next(iter(rows.values()))["settings"])
