"""The Fisher-weighted step: many channels a little, instead of a few all the way.

Beyond the paper. A channel moves in proportion to how much suppressing it raises the forget loss,
less how much it raises the retain loss, over how sensitive the retain loss is to it at all.
"""

from __future__ import annotations

import torch

from tfrnet.masking.mask import dormant
from tfrnet.methods.tfr.suppression import suppression_room


def running_fisher(previous: torch.Tensor, square: torch.Tensor, decay: float) -> torch.Tensor:
    """Return the running mean of squared retain gradients; the first request sets it."""
    if not bool(previous.any()):
        return square.clone()
    return decay * previous + (1 - decay) * square


def fisher_direction(
    forget_gradient: torch.Tensor,
    retain_gradient: torch.Tensor,
    fisher: torch.Tensor,
    damping: float,
    budget: int | None,
) -> torch.Tensor:
    """Return how far each channel moves down, largest 1, at most `budget` of them above 0.

    Lowering a mask by e changes a loss by -e dL/dm, so a negative gradient means that suppression
    raises the loss: wanted for the forget loss, held against the channel for the retain loss.
    """
    gain = (-forget_gradient - (-retain_gradient).clamp(min=0)).clamp(min=0)
    scale = fisher + damping * fisher.mean()
    direction = torch.where(scale > 0, gain / scale, torch.zeros_like(gain))
    if budget is not None and budget < direction.numel():
        order = torch.sort(direction, descending=True, stable=True).indices
        direction = direction.clone()
        direction[order[budget:]] = 0
    largest = direction.max() if direction.numel() else direction.new_zeros(())
    return direction / largest if largest > 0 else direction


def fisher_step(
    mask: torch.Tensor,
    direction: torch.Tensor,
    size: float,
    dormant_threshold: float,
    max_sparsity: float,
) -> torch.Tensor:
    """Return clip(mask - size * direction, 0, 1), within the sparsity cap.

    Of the channels that would become dormant, those of the largest direction do, as many as the
    cap has room for; the others stay where they are.
    """
    moved = (mask - size * direction).clamp(0, 1)
    falling = dormant(moved, dormant_threshold) & ~dormant(mask, dormant_threshold)
    crossing = falling.nonzero().flatten()
    room = suppression_room(mask, dormant_threshold, max_sparsity)
    order = torch.sort(direction[crossing], descending=True, stable=True).indices
    held = crossing[order[room:]]
    moved[held] = mask[held]
    return moved
