"""How the loss on some examples changed: means, and whether the change stands out from noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import torch

# A change of less than this share of the loss is called none, however sure it is.
_NEGLIGIBLE = 0.01
# A change of fewer standard errors than this is called noise.
_ERRORS = 2.0
_UNCHANGED, _NOISE = "unchanged", "unchanged within noise"


@dataclass(frozen=True)
class Change:
    """Mean losses of the same examples, and the standard error of the mean change by the request.

    The error is that of paired differences; None for a single example. What was not measured of the
    untouched model is None too.
    """

    examples: int
    loss_untouched: float | None
    loss_before: float
    loss_after: float
    error: float | None

    @classmethod
    def of(cls, untouched: torch.Tensor | None, before: torch.Tensor, after: torch.Tensor) -> Self:
        """Return the change between the losses of examples in the same order."""
        differences = (after - before).double()
        count = differences.numel()
        error = float(differences.std() / math.sqrt(count)) if count > 1 else None
        return cls(
            examples=count,
            loss_untouched=None if untouched is None else float(untouched.double().mean()),
            loss_before=float(before.double().mean()),
            loss_after=float(after.double().mean()),
            error=error,
        )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read a change from a line of the ledger, where a loss that is not finite is null."""
        known = {name: values[name] for name in cls.__dataclass_fields__}
        for name in ("loss_before", "loss_after"):
            known[name] = math.nan if known[name] is None else known[name]
        return cls(**known)

    def to_dict(self) -> dict[str, Any]:
        """Return the change as plain numbers."""
        return asdict(self)

    @property
    def rise(self) -> float:
        """The change of the loss by the request, relative to the loss before it."""
        return _relative(self.loss_before, self.loss_after)

    @property
    def total_rise(self) -> float:
        """The change of the loss since the untouched model, relative to its loss."""
        return _relative(self.loss_untouched or 0.0, self.loss_after)

    @property
    def is_unchanged(self) -> bool:
        """Whether the request changed the loss by too little to matter, or not beyond noise."""
        return self.words in (_UNCHANGED, _NOISE)

    @property
    def words(self) -> str:
        """What the request did: unchanged, within noise, or by how much worse or better."""
        if not math.isfinite(self.loss_after):
            return "no longer finite" if math.isfinite(self.loss_before) else "not finite"
        if not math.isfinite(self.loss_before):
            return "finite again"
        if abs(self.rise) < _NEGLIGIBLE:
            return _UNCHANGED
        change = abs(self.loss_after - self.loss_before)
        if self.error is not None and change < _ERRORS * self.error:
            return _NOISE
        return f"{'worse' if self.rise > 0 else 'better'} by {100 * abs(self.rise):.1f} %"


def _relative(first: float, last: float) -> float:
    return (last - first) / first if first > 0 else 0.0
