"""Choosing and suppressing the channels that stay risky (eq. suppression_factor)."""

from __future__ import annotations

import math

import torch

from tfrnet.masking.mask import dormant


def suppression_room(mask: torch.Tensor, threshold: float, max_sparsity: float) -> int:
    """Return how many more channels may become dormant."""
    allowed = math.floor(max_sparsity * mask.numel())
    return max(0, allowed - int(dormant(mask, threshold).sum()))


def select_channels(
    mask: torch.Tensor,
    priority: torch.Tensor,
    budget: int | None,
    dormant_threshold: float,
    max_sparsity: float,
) -> torch.Tensor:
    """Return the indices of P: the active channels of highest positive priority, ascending.

    At most `budget` of them and no more than the sparsity cap leaves room for; among equal
    priorities the lower index comes first.
    """
    room = suppression_room(mask, dormant_threshold, max_sparsity)
    if budget is not None:
        room = min(budget, room)
    eligible = (~dormant(mask, dormant_threshold) & (priority > 0)).nonzero().flatten()
    order = torch.sort(priority[eligible], descending=True, stable=True).indices
    return eligible[order[:room]].sort().values


def suppress(mask: torch.Tensor, selected: torch.Tensor, strength: float) -> torch.Tensor:
    """Return the mask with the selected channels scaled by 1 - strength (eq. pre_recovery_mask)."""
    result = mask.clone()
    result[selected] *= 1 - strength
    return result


def lower(
    mask: torch.Tensor,
    direction: torch.Tensor,
    size: float,
    dormant_threshold: float,
    max_sparsity: float,
) -> torch.Tensor:
    """Return clip(mask - size * direction, 0, 1), within the sparsity cap (the other steps).

    If more channels would become dormant than the cap allows, those with the largest direction do;
    the others stay where they are.
    """
    moved = (mask - size * direction).clamp(0, 1)
    falling = dormant(moved, dormant_threshold) & ~dormant(mask, dormant_threshold)
    crossing = falling.nonzero().flatten()
    room = suppression_room(mask, dormant_threshold, max_sparsity)
    order = torch.sort(direction[crossing], descending=True, stable=True).indices
    held = crossing[order[room:]]
    moved[held] = mask[held]
    return moved
