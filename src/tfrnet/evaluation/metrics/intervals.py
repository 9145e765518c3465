"""The uncertainty of measurements: standard errors and confidence intervals.

SciPy is imported where it is used: the import is slow, and most commands do not need it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from tfrnet.core.errors import InputError

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """The two ends of an interval."""

    low: float
    high: float


def standard_error(values: Sequence[float]) -> float | None:
    """Return the sample standard deviation over the root of n; None for fewer than two values."""
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None


def auc_standard_error(auc: float, positives: int, negatives: int) -> float:
    """Return Hanley and McNeil's standard error of an area under the ROC curve."""
    _check_share(auc, min(positives, negatives))
    # Their Q1 - A^2 and Q2 - A^2 with A (1 - A) factored out, so rounding cannot make it negative.
    spread = 1 + (positives - 1) * (1 - auc) / (2 - auc) + (negatives - 1) * auc / (1 + auc)
    return math.sqrt(auc * (1 - auc) * spread / (positives * negatives))


def wilson_interval(successes: int, count: int, confidence: float = CONFIDENCE) -> Interval:
    """Return Wilson's interval of a share; unlike the normal one it has a width at 0 and at 1."""
    from scipy.stats import binomtest

    if not 0 <= successes <= count or count < 1:
        raise InputError(f"{successes} of {count} is not a share")
    found = binomtest(successes, count).proportion_ci(confidence, method="wilson")
    return Interval(float(found.low), float(found.high))


def t_interval(
    values: Sequence[float], confidence: float = CONFIDENCE
) -> tuple[float, Interval | None]:
    """Return the mean over seeds and its Student's t interval, which is None for a single seed."""
    from scipy.stats import t

    if not values:
        raise InputError("a mean needs at least one value")
    mean = fmean(values)
    error = standard_error(values)
    if error is None:
        return mean, None
    reach = float(t.ppf((1 + confidence) / 2, len(values) - 1)) * error
    return mean, Interval(mean - reach, mean + reach)


def _check_share(share: float, count: int) -> None:
    """Refuse a share outside [0, 1], NaN included, and a count below one."""
    if not 0 <= share <= 1 or count < 1:
        raise InputError(f"a share in [0, 1] of one or more items is needed, not {share}, {count}")
