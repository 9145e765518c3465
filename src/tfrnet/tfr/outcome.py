"""What a request did: the numbers that are shown to a person and kept in the ledger."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Outcome:
    """The record of one request; sizes are numbers of channels, losses means over examples.

    Of a rejected request, the losses after and the sizes are those of the mask that was refused;
    the counts of suppressed and dormant channels and the capacity are always the state's.
    """

    id: str
    outcome: Literal["accepted", "rejected"]
    reason: str
    forget_loss_before: float
    forget_loss_after: float
    retain_loss_before: float
    guard_loss_before: float
    guard_loss_after: float
    selected: int  # |P|
    recovery_pool: int  # |Q|
    recovered: int  # |U|
    suppressed_now: int  # mask below 1, in the state after the request
    dormant: int
    capacity: float
    attempts: int
    top_channels: tuple[int, ...]  # highest chi first
    seconds: dict[str, float]

    @property
    def accepted(self) -> bool:
        """Whether the new state was taken."""
        return self.outcome == "accepted"

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain JSON values; a number that is not finite becomes null."""
        values = asdict(self) | {"top_channels": list(self.top_channels)}
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in values.items()
        }
