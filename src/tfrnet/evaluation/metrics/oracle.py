"""The distance of an unlearned model from the oracle, which was trained without the forgotten data.

A loss is the mean negative log-likelihood of a right answer's tokens, in nats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tfrnet.core.errors import InputError
from tfrnet.evaluation.metrics.tofu_scores import Numbers, as_numbers

# Answers less likely than this quantile of the oracle's are over-forgotten.
RAREST = 0.01


@dataclass(frozen=True)
class Answers:
    """A model's answers to some items: whether right, the right answer's loss, and the words."""

    correct: Sequence[bool]
    losses: Numbers
    said: Sequence[str]

    def __post_init__(self) -> None:
        if len({len(self.correct), len(self.losses), len(self.said)}) > 1:
            raise InputError("answers need one verdict, one loss and one text for every item")

    def first(self, count: int) -> Answers:
        """Return the answers to the first items only."""
        return Answers(self.correct[:count], self.losses[:count], self.said[:count])


@dataclass(frozen=True)
class OracleDistance:
    """Three distances on the same items; for the oracle itself they are 0, and agreement 100.

    `accuracy` is in points, above 0 where the model still knows more than the oracle; `losses` is
    the Kolmogorov-Smirnov statistic from 0 to 1; `agreement` the share of equal answers in percent.
    """

    accuracy: float
    losses: float
    agreement: float


def loss_distance(own: Numbers, oracle: Numbers) -> float:
    """Return the Kolmogorov-Smirnov statistic of two models' losses: 0 if alike, 1 if apart."""
    from scipy.stats import ks_2samp

    sides = as_numbers(own, "loss"), as_numbers(oracle, "loss of the oracle")
    return float(ks_2samp(*sides).statistic)


def oracle_distance(own: Answers, oracle: Answers) -> OracleDistance:
    """Compare two models on the same items."""
    if len(own.said) != len(oracle.said):
        raise InputError("a distance to the oracle needs both models measured on the same items")
    same = [mine == other for mine, other in zip(own.said, oracle.said, strict=True)]
    return OracleDistance(
        100 * float(np.mean(own.correct) - np.mean(oracle.correct)),
        loss_distance(own.losses, oracle.losses),
        100 * float(np.mean(same)),
    )


def over_forgetting(losses: Numbers, oracle_losses: Numbers) -> float:
    """Return the percentage of answers less likely than the oracle's first percentile.

    Such answers reveal what was deleted. The oracle itself has about 1 %.
    """
    limit = np.quantile(as_numbers(oracle_losses, "loss of the oracle"), 1 - RAREST)
    return 100 * float((as_numbers(losses, "loss") > limit).mean())
