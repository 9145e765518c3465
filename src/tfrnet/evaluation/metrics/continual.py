"""Scores of a stream of requests: what was forgotten, what was kept, and the balance of both.

Accuracies and scores are percentages. Averages are not rounded: the published Trade-offs can only
be reproduced from unrounded ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from tfrnet.core.errors import InputError

CHECKPOINTS = (5, 10, 15, 20)


def quarters(requests: int) -> tuple[int, ...]:
    """Return the requests at which a stream is measured whole: the ends of its quarters."""
    ends = (round(requests * quarter / 4) for quarter in range(1, 5))
    return tuple(sorted({number for number in ends if number}))


@dataclass(frozen=True)
class StreamScores:
    """The scores of one stream, averaged over its checkpoints."""

    forget_average: float
    forget_final: float
    retain_average: float

    @property
    def trade_off(self) -> float:
        """The Trade-off of the averages (not the average of Trade-offs)."""
        return trade_off(self.forget_average, self.retain_average)


def score_stream(
    forget: Mapping[int, float],
    retain: Mapping[int, Sequence[float]],
    checkpoints: Sequence[int] = CHECKPOINTS,
) -> StreamScores:
    """Average the accuracies at the checkpoints, which are request numbers; others are ignored.

    `checkpoints=(0,)` scores the untouched model. Compare a Trade-off with that one, since a model
    that knew little to begin with scores well by doing nothing.
    """
    if not checkpoints or len(set(checkpoints)) != len(checkpoints):
        raise InputError("the checkpoints must be one or more different request numbers")
    unpaired = sorted(forget.keys() ^ retain.keys())
    if unpaired:
        raise InputError(f"request {unpaired[0]} has a forget or a retain accuracy, not both")
    missing = sorted(set(checkpoints) - forget.keys())
    if missing:
        raise InputError(f"there are no accuracies at checkpoint {missing[0]}")
    widths = {len(retain[t]) for t in checkpoints}
    if len(widths) > 1 or widths == {0}:
        raise InputError("every checkpoint needs the same number of retain accuracies")
    return StreamScores(
        fmean(_percentage(forget[t], f"forget accuracy at request {t}") for t in checkpoints),
        forget[max(checkpoints)],
        fmean(
            _percentage(value, f"retain accuracy at request {t}")
            for t in checkpoints
            for value in retain[t]
        ),
    )


def trade_off(forget: float, retain: float) -> float:
    """Return the harmonic mean of 100 - forget accuracy and retain accuracy; 0 if both are 0."""
    forgotten = 100 - _percentage(forget, "forget accuracy")
    total = forgotten + _percentage(retain, "retain accuracy")
    return 2 * forgotten * retain / total if total else 0.0


def _percentage(value: float, name: str) -> float:
    """Return the value; raise unless it is in [0, 100], also for NaN."""
    if not 0 <= value <= 100:
        raise InputError(f"{name} must be in [0, 100], not {value}")
    return value
