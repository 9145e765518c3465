"""The honest Trade-off: only items requested so far count, and scores below chance earn nothing.

The paper's Trade-off counts all items of a stream, even those that no request has named yet, and
rewards answers that are wrong on purpose. Accuracies and scores are percentages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from tfrnet.core.errors import InputError


@dataclass(frozen=True)
class HonestScores:
    """How much of what can be forgotten is gone, how much is kept, and the balance of both."""

    forgotten: float
    kept: float

    @property
    def trade_off(self) -> float:
        """The harmonic mean; 0 if nothing was forgotten."""
        forgotten = max(self.forgotten, 0.0)
        total = forgotten + self.kept
        return 2 * forgotten * self.kept / total if total else 0.0


def honest_scores(
    before: float,
    requested: Sequence[float],
    chance: float,
    retain_before: float,
    retain: Sequence[float],
) -> HonestScores | None:
    """Return the scores of a stream; None if the model knew nothing that could be forgotten.

    `requested` is the accuracy on the items requested so far and `retain` that on held-out items,
    at each checkpoint; `before` and `retain_before` are the same before the first request.
    """
    if not requested or len(requested) != len(retain):
        raise InputError("every checkpoint needs an accuracy on requested and on held-out items")
    if before <= chance or retain_before <= 0:
        return None
    gone = [(before - max(now, chance)) / (before - chance) for now in requested]
    return HonestScores(100 * fmean(gone), 100 * fmean(now / retain_before for now in retain))
