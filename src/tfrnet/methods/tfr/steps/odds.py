"""How sure the model is of an answer, as log-odds, and how each channel bears on it.

An answer that was learnt by heart has a loss near 0, and its gradient vanishes with it, though the
channels that hold it are as many as ever. Log-odds do not saturate: they fall by the same amount
whether the probability goes from 0.9999 to 0.999 or from 0.9 to 0.5.
"""

from __future__ import annotations

import torch

# Losses below this are rounding; at it the log-odds are 13.8.
_SMALLEST_LOSS = 1e-6


def log_odds(losses: torch.Tensor) -> torch.Tensor:
    """Return log(p / (1 - p)) for p = exp(-loss), the geometric mean of the tokens' probability."""
    return -torch.log(torch.expm1(losses.clamp(min=_SMALLEST_LOSS)))


def log_odds_gradients(gradients: torch.Tensor, losses: torch.Tensor) -> torch.Tensor:
    """Return the gradients [B, C] of the log-odds from the gradients of the losses [B]."""
    return gradients / torch.expm1(-losses.clamp(min=_SMALLEST_LOSS)).unsqueeze(1)


def certainty_weights(losses: torch.Tensor, sharpness: float) -> torch.Tensor:
    """Return (1 - p)^sharpness: how little it matters what a sure answer loses of its log-odds."""
    return (-torch.expm1(-losses.clamp(min=_SMALLEST_LOSS))) ** sharpness
