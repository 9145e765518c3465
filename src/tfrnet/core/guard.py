"""The retain guard: whether the new state may be committed (eq. retain_guard)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfrnet.core.drift import MAKES_ROOM

if TYPE_CHECKING:
    from tfrnet.core.guarded_settings import GuardedSettings

# A shortened step aims a little below the limit, so that rounding does not waste it.
_AIM = 0.9


@dataclass(frozen=True)
class Verdict:
    """The guard's decision on one candidate."""

    before: float
    after: float
    limit: float
    what: str = "guard loss"
    # Whether the limit is that of the whole stream, not of this request.
    of_stream: bool = False

    @property
    def accepted(self) -> bool:
        """Whether the loss is finite and within its limit."""
        return math.isfinite(self.after) and self.after <= self.limit

    @property
    def reason(self) -> str:
        """The verdict in words."""
        if not math.isfinite(self.after):
            return f"{self.what} would be {self.after}"
        if math.isinf(self.limit):
            return "guard off"
        if self.accepted:
            return f"{self.what} within tolerance"
        rise = f"{self.what} would rise from {self.before:.4f} to {self.after:.4f}"
        if self.of_stream:
            limit = f"over the limit {self.limit:.4f} of the whole stream (drift_limit)"
            return f"{rise}, {limit}. {MAKES_ROOM}"
        return f"{rise}, over the limit {self.limit:.4f}"

    def shrink(self, largest: float) -> float:
        """Return the share of a refused step to try next, at most `largest`.

        It is accepted if the loss of a shorter step rises at most in proportion to its length.
        """
        rise, allowed = self.after - self.before, self.limit - self.before
        if not math.isfinite(rise) or rise <= 0:
            return largest
        return min(largest, max(0.05, _AIM * allowed / rise))


def guard_limit(before: float, relative: float, absolute: float) -> float:
    """Return the largest loss that eq. retain_guard accepts."""
    return (1 + relative) * before + absolute


def judge(
    before: float, after: float, settings: GuardedSettings, ceiling: float = math.inf
) -> Verdict:
    """Return the guard's verdict on a request; `use_guard=False` accepts any finite loss.

    `ceiling` is the largest guard loss of the whole stream.
    """
    if not settings.use_guard:
        return Verdict(before, after, math.inf)
    limit = guard_limit(before, settings.guard_relative, settings.guard_absolute)
    return Verdict(before, after, min(limit, ceiling), of_stream=ceiling < limit)
