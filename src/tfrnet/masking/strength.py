"""How strong a mask is: how much it changes the channels. The same figures wherever it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class MaskStrength:
    """A channel's change is 1 - mask: 0 leaves it alone, 1 removes it."""

    channels: int
    mean_change: float
    largest_change: float
    changed_1_percent: int  # channels changed by more than 1 %
    changed_10_percent: int
    changed_50_percent: int
    dormant: int

    @property
    def capacity(self) -> float:
        """The share of channels that are not dormant."""
        return 1 - self.dormant / self.channels

    @classmethod
    def of(cls, mask: np.ndarray, dormant_threshold: float) -> MaskStrength:
        """Return the strength of a mask."""
        change = 1 - mask.astype("float64")
        return cls(
            channels=mask.size,
            mean_change=float(change.mean()),
            largest_change=float(change.max()),
            changed_1_percent=int((change > 0.01).sum()),
            changed_10_percent=int((change > 0.1).sum()),
            changed_50_percent=int((change > 0.5).sum()),
            dormant=int((mask <= dormant_threshold).sum()),
        )

    @classmethod
    def recorded(cls, values: Mapping[str, Any] | None) -> MaskStrength | None:
        """Return the strength that a ledger has; one of before has none."""
        return cls(**values) if values else None

    def to_dict(self) -> dict[str, int | float]:
        """Return the figures as plain values."""
        return asdict(self)

    def change(self) -> str:
        """Return the size of the change in words."""
        return (
            f"changed by {_percent(self.mean_change)} on average, "
            f"{_percent(self.largest_change)} at most"
        )

    def counts(self) -> str:
        """Return how many channels are changed, in words."""
        return (
            f"{self.changed_1_percent} of {self.channels} channels by more than 1 %, "
            f"{self.changed_10_percent} by more than 10 %, {self.changed_50_percent} by more than "
            f"50 %, {self.dormant} dormant"
        )


def _percent(share: float) -> str:
    """Return a share in percent; small ones keep two digits, and only 0 is shown as 0."""
    percent = 100 * share
    return f"{percent:.1f} %" if percent >= 10 or not percent else f"{percent:.2g} %"
