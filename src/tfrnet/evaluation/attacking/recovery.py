"""Metrics for how much an attack brings back. A curve is a list of (step, metric)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

Curve = Sequence[tuple[int, float]]


def recovery_rate(before: float, after: float, untouched: float) -> float | None:
    """Return the share of the drop that an attack brought back; None if there was no drop."""
    return None if untouched == before else (after - before) / (untouched - before)


def area_between(unlearned: Curve, untouched: Curve) -> float:
    """Return the area between the unlearned model's curve and the untouched model's.

    Positive where the untouched model's metric is higher; points are joined by straight lines.
    """
    if [step for step, _ in unlearned] != [step for step, _ in untouched]:
        raise ValueError("the curves were measured at different steps")
    gaps = [(step, b - a) for (step, a), (_, b) in zip(unlearned, untouched, strict=True)]
    return sum((end - start) * (a + b) / 2 for (start, a), (end, b) in pairwise(gaps))


def steps_to_half_recovery(curve: Curve, before: float, untouched: float) -> float | None:
    """Return the step at which half of what was forgotten is back; None if it never is.

    Interpolates linearly between measured steps. The metric may be higher or lower in the
    untouched model.
    """
    last: tuple[int, float] | None = None
    for step, value in curve:
        rate = recovery_rate(before, value, untouched)
        if rate is None:
            return None
        if rate >= 0.5:
            if last is None:
                return float(step)
            start, low = last
            return start + (step - start) * (0.5 - low) / (rate - low)
        last = step, rate
    return None
