"""What a stream does to the channels: which are relevant, which are suppressed, what is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch

from tfrnet.core.errors import InputError
from tfrnet.masking.mask import capacity, dormant


@dataclass(frozen=True)
class Composition:
    """Where the most relevant channels of a request come from; the three shares sum to 1."""

    core: float  # relevant at the first request
    new: float  # relevant for the first time
    recurring: float  # relevant before, but not at the first request


def composition(rankings: Sequence[Sequence[int]], size: int) -> list[Composition]:
    """Return each request's composition from its channels, the most relevant first.

    Only the first `size` (K) of each count. Rank all channels: among active ones only, the core
    would shrink just because it was suppressed, which says nothing about the model.
    """
    if size < 1:
        raise InputError(f"the number of channels must be positive, not {size}")
    seen: set[int] = set()
    core: set[int] = set()
    shares = []
    for number, ranking in enumerate(rankings, start=1):
        top = set(ranking[:size])
        if len(top) < size:
            raise InputError(f"request {number} has fewer than {size} different channels")
        if number == 1:
            core = top
        rest = top - core
        counts = len(top & core), len(rest - seen), len(rest & seen)
        shares.append(Composition(*(count / size for count in counts)))
        seen |= top
    return shares


def random_overlap(size: int, channels: int) -> float:
    """Return the expected overlap of two random sets of `size` channels, as a share."""
    if not 0 < size <= channels:
        raise InputError(f"{size} of {channels} channels cannot be drawn")
    return size / channels


@dataclass(frozen=True)
class MaskFigures:
    """How much of the model a mask leaves active; sizes are numbers of channels."""

    total: int
    dormant: int
    suppressed_now: int
    capacity: float

    @property
    def capacity_loss(self) -> float:
        """The share of dormant channels, in percent."""
        return 100 * self.dormant / self.total


def mask_figures(mask: torch.Tensor | Sequence[torch.Tensor], threshold: float) -> MaskFigures:
    """Return the figures of a mask, given as one tensor or one per projection."""
    parts = [mask] if isinstance(mask, torch.Tensor) else mask
    if not sum(part.numel() for part in parts):
        raise InputError("a mask without channels has no capacity")
    values = torch.cat([part.flatten() for part in parts])
    if not bool(((values >= 0) & (values <= 1)).all()):
        raise InputError("the values of a mask must be in [0, 1]")
    return MaskFigures(
        values.numel(),
        int(dormant(values, threshold).sum()),
        int((values < 1).sum()),
        capacity(values, threshold),
    )


@dataclass(frozen=True)
class MaskChange:
    """What one request did to the mask; sizes are numbers of channels."""

    suppressed_ever: int  # lowered by any request so far
    recovered: int  # raised by this request
    net_dormant: int  # increase of dormant channels by this request


def mask_changes(masks: Sequence[torch.Tensor], threshold: float) -> list[MaskChange]:
    """Return what each request did, from the masks before the first and after every request.

    A rejected request does not change the mask.
    """
    changes: list[MaskChange] = []
    ever = torch.zeros_like(masks[0], dtype=torch.bool)
    for before, after in pairwise(masks):
        ever = ever | (after < before)
        net = int(dormant(after, threshold).sum()) - int(dormant(before, threshold).sum())
        changes.append(MaskChange(int(ever.sum()), int((after > before).sum()), net))
    return changes
