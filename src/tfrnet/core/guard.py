"""The retain guard: whether the new state may be committed (eq. retain_guard).

If guard examples name groups, the same tolerance holds for every group as for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tfrnet.core.drift import MAKES_ROOM

if TYPE_CHECKING:
    import torch

    from tfrnet.core.guarded_settings import GuardedSettings

# A shortened step aims a little below the limit, so that rounding does not waste it.
_AIM = 0.9


@dataclass(frozen=True)
class GuardLoss:
    """The mean loss of all guard examples, and that of each of their groups, if there are any."""

    mean: float
    groups: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, losses: torch.Tensor, groups: Mapping[str, Sequence[int]]) -> GuardLoss:
        """Return the means of the examples' losses, given the places of every group's examples."""
        means = {name: float(losses[list(places)].mean()) for name, places in groups.items()}
        return cls(float(losses.mean()), means)


@dataclass(frozen=True)
class Verdict:
    """The guard's decision on one candidate; the figures are those of all guard examples."""

    before: float
    after: float
    limit: float
    what: str = "guard loss"
    # Whether the limit is that of the whole stream, not of this request.
    of_stream: bool = False
    # The verdicts on the groups; each of them has its name.
    groups: tuple[Verdict, ...] = ()
    group: str = ""

    @property
    def parts(self) -> tuple[Verdict, ...]:
        """The verdict on all guard examples, without groups, then those on the groups."""
        return (replace(self, groups=()), *self.groups)

    @property
    def accepted(self) -> bool:
        """Whether the loss is finite and within its limit, and so is that of every group."""
        return not self._refused

    @property
    def reason(self) -> str:
        """The verdict in words; a refusal names the part that is farthest over its limit."""
        if not self._refused:
            return "guard off" if math.isinf(self.limit) else f"{self.what} within tolerance"
        worst = max(self._refused, key=lambda part: part._excess)
        what = worst.what + (f" in group {worst.group!r}" if worst.group else "")
        if not math.isfinite(worst.after):
            return f"{what} would be {worst.after}"
        # So many that a rise above a limit of no rise is seen.
        digits = next(
            (n for n in range(4, 9) if f"{worst.after:.{n}f}" != f"{worst.limit:.{n}f}"), 9
        )
        before, after, limit = (
            f"{value:.{digits}f}" for value in (worst.before, worst.after, worst.limit)
        )
        rise = f"{what} would rise from {before} to {after}, over the limit {limit}"
        if worst.of_stream:
            return f"{rise} of the whole stream (drift_limit). {MAKES_ROOM}"
        return rise

    def shrink(self, largest: float) -> float:
        """Return the share of a refused step to try next, at most `largest`.

        It is accepted if the losses of a shorter step rise at most in proportion to its length.
        """
        return min(part._shrink(largest) for part in self._refused)

    def group_losses(self, before: GuardLoss) -> dict[str, dict[str, float]]:
        """Return every group's loss before the request and after it, for the outcome."""
        return {
            part.group: {"before": before.groups[part.group], "after": part.after}
            for part in self.groups
        }

    @property
    def _refused(self) -> list[Verdict]:
        return [
            part
            for part in self.parts
            if not (math.isfinite(part.after) and part.after <= part.limit)
        ]

    @property
    def _excess(self) -> float:
        """The loss as a multiple of its limit."""
        return self.after / self.limit if math.isfinite(self.after) and self.limit else math.inf

    def _shrink(self, largest: float) -> float:
        rise, allowed = self.after - self.before, self.limit - self.before
        if not math.isfinite(rise) or rise <= 0:
            return largest
        return min(largest, max(0.05, _AIM * allowed / rise))


def guard_limit(before: float, relative: float, absolute: float) -> float:
    """Return the largest loss that eq. retain_guard accepts."""
    return (1 + relative) * before + absolute


def judge(
    before: GuardLoss, after: GuardLoss, settings: GuardedSettings, ceiling: float = math.inf
) -> Verdict:
    """Return the guard's verdict on a request; `use_guard=False` accepts any finite loss.

    `ceiling` is the largest mean guard loss of the whole stream. No group has one: of a loss near
    0, as that of a group may be, every multiple is too little.
    """
    groups = tuple(
        replace(_judge(loss, after.groups[name], settings), group=name)
        for name, loss in before.groups.items()
    )
    return replace(_judge(before.mean, after.mean, settings, ceiling), groups=groups)


def _judge(
    before: float, after: float, settings: GuardedSettings, ceiling: float = math.inf
) -> Verdict:
    if not settings.use_guard:
        return Verdict(before, after, math.inf)
    limit = guard_limit(before, settings.guard_relative, settings.guard_absolute)
    return Verdict(before, after, min(limit, ceiling), of_stream=ceiling < limit)
