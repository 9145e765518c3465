"""How sure a measured number is: standard errors and intervals.

SciPy is imported where it is used: it takes a moment, which most commands need not wait for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfrnet.core.errors import InputError

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """The two ends of an interval."""

    low: float
    high: float


def standard_error(values: Sequence[float]) -> float | None:
    """Return the sample standard deviation over the root of n; None if there are fewer than two."""
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None


def binomial_standard_error(share: float, count: int) -> float:
    """Return the standard error of a share in [0, 1] that was counted on so many items."""
    _check_share(share, count)
    return math.sqrt(share * (1 - share) / count)


def auc_standard_error(auc: float, positives: int, negatives: int) -> float:
    """Return Hanley and McNeil's standard error of an area under the ROC curve."""
    _check_share(auc, min(positives, negatives))
    # Their Q1 - A^2 and Q2 - A^2 with A (1 - A) taken out: rounding cannot make this negative.
    spread = 1 + (positives - 1) * (1 - auc) / (2 - auc) + (negatives - 1) * auc / (1 + auc)
    return math.sqrt(auc * (1 - auc) * spread / (positives * negatives))


def wilson_interval(successes: int, count: int, confidence: float = CONFIDENCE) -> Interval:
    """Return Wilson's interval of a share; unlike the plain one it has a width at 0 and at 1."""
    from scipy.stats import binomtest

    if not 0 <= successes <= count or count < 1:
        raise InputError(f"{successes} of {count} is not a share")
    found = binomtest(successes, count).proportion_ci(confidence, method="wilson")
    return Interval(float(found.low), float(found.high))


def paired_bootstrap(
    statistic: Callable[..., float],
    samples: Sequence[ArrayLike],
    seed: int,
    resamples: int = 1000,
    confidence: float = CONFIDENCE,
) -> Interval:
    """Return the percentile interval of `statistic(*samples)` when items are drawn anew.

    The samples are values of the same items, in the same order; an item is drawn with all of them,
    so what two methods have in common on an item does not widen the interval of their difference.
    """
    from scipy.stats import bootstrap

    arrays: list[NDArray[np.float64]] = [np.asarray(sample, dtype=float) for sample in samples]
    lengths = {array.shape for array in arrays}
    if len(lengths) != 1 or arrays[0].ndim != 1 or arrays[0].size < 2:
        raise InputError("a paired bootstrap needs samples of the same two or more items")
    found = bootstrap(
        arrays,
        statistic,
        n_resamples=resamples,
        confidence_level=confidence,
        method="percentile",
        paired=True,
        vectorized=False,
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return Interval(float(found.low), float(found.high))


def t_interval(
    values: Sequence[float], confidence: float = CONFIDENCE
) -> tuple[float, Interval | None]:
    """Return the mean over seeds and Student's interval of it; None for a single seed."""
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
