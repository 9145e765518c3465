"""The entries of a page's tables, from figures that may be missing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tfrnet.evaluation.metrics.intervals import t_interval
from tfrnet_bench.tables.table import Value

MISSING = Value("-")
MEANING = (
    "± is half the width of the 95 % interval (Student's t) of a mean; a mean without it is of a "
    "single value."
)


def number(value: float | None, digits: int = 1) -> Value:
    """Return a number as it was measured; one that is missing or not finite is a dash."""
    if value is None or not math.isfinite(value):
        return MISSING
    return Value(f"{value:,.{digits}f}", float(value))


def mean(values: Iterable[float | None], digits: int = 1) -> Value:
    """Return the mean of the values there are, with half the width of its 95 % interval."""
    found: Sequence[float] = [value for value in values if value is not None]
    if not found or not all(map(math.isfinite, found)):
        return MISSING
    centre, interval = t_interval(found)
    entry = number(centre, digits)
    if interval is None:
        return entry
    reach = f"± {centre - interval.low:,.{digits}f}"
    ends = f"{interval.low:,.{digits}f} to {interval.high:,.{digits}f}"
    return replace(entry, note=reach, hint=f"95 % interval {ends}, n = {len(found)}")


def figure_at(values: Any, *path: str) -> float | None:
    """Return the number at a path of names; None if there is none."""
    for name in path:
        values = values.get(name) if isinstance(values, Mapping) else None
    return values if isinstance(values, int | float) else None
