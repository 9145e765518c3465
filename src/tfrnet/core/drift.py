"""The total drift of a stream: its guard loss over that of the untouched model, and its limit."""

from __future__ import annotations

import math
from dataclasses import dataclass

# On SmolLM2 our streams of tasks end at 1.2 to 2.97 times the loss that they began with.
DRIFT_LIMIT = 3.0
DRIFT_HELP = (
    "maximum guard loss over the whole stream, as a multiple of that of the untouched model; it "
    "acts with the guard, may be changed in the life of a state, and none means no limit"
)
MAKES_ROOM = (
    "Retain data near the requests keep the drift low; 'tfrnet rollback' makes room, and so does a "
    "higher limit (--set drift_limit=...)"
)
# From this share of the limit on there is a warning.
_WARN = 0.8


@dataclass(frozen=True)
class Drift:
    """Where a state stands: its guard loss, that of the untouched model, and the limit."""

    untouched: float
    now: float
    limit: float | None = None

    @property
    def ratio(self) -> float:
        """The guard loss as a multiple of that of the untouched model."""
        return self.now / self.untouched if self.untouched > 0 else math.inf

    @property
    def used(self) -> float | None:
        """The share of the limit that is used up; None without a limit."""
        if self.limit is None:
            return None
        if self.ratio <= 1:
            return 0.0
        return (self.ratio - 1) / (self.limit - 1) if self.limit > 1 else 1.0

    @property
    def words(self) -> str:
        """The drift and how much of its limit is used up."""
        drift = f"guard loss {self.ratio:.2f} times that of the untouched model"
        if self.used is None:
            return f"{drift}, no limit"
        return f"{drift}, {100 * self.used:.0f} % of drift_limit {self.limit:g} used up"

    @property
    def warning(self) -> str:
        """What to say when most of the limit is used up, and what to do; else nothing."""
        if self.used is None or self.used < _WARN:
            return ""
        return f"total drift: {self.words}; requests beyond it are refused. {MAKES_ROOM}"


def drift_ceiling(untouched: float | None, limit: float | None) -> float:
    """Return the largest guard loss that the limit allows."""
    return math.inf if untouched is None or limit is None else limit * untouched
