"""Which MLP channels LLM-Eraser prunes, as pure functions of weights, gradients and counts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

# The weights of a gated MLP's channel j: rows j of gate and up, column j of down.
CHANNEL_DIM = {"gate_proj": 0, "up_proj": 0, "down_proj": 1}

_SPARED_FIRST, _SPARED_LAST = 4, 2


def salience(weight: torch.Tensor, gradient: torch.Tensor, dim: int) -> torch.Tensor:
    """Return the sum of |w * dL/dw| of every channel along `dim` of a matrix. [C].

    In float32 or wider: with a mean loss the products are around 1e-9.
    """
    wide = torch.promote_types(weight.dtype, torch.float32)
    return (weight.to(wide) * gradient.to(wide)).abs().sum(1 - dim)


def selective_scores(
    retain: torch.Tensor, forget: torch.Tensor, forget_weight: float
) -> torch.Tensor:
    """Return I_retain - forget_weight * I_forget: low where a channel serves the forget data."""
    return retain - forget_weight * forget


def lowest(scores: torch.Tensor, candidates: torch.Tensor, count: int) -> torch.Tensor:
    """Return the `count` candidates with the lowest scores, in order; ties by index."""
    order = scores.argsort(stable=True)
    return order[candidates[order]][:count]


def lowest_by_layer(
    layers: Sequence[torch.Tensor], candidates: torch.Tensor, count: int
) -> torch.Tensor:
    """Return the `count` candidates that are lowest within their layers, in flat numbers.

    All layers give equally many while they have candidates; what does not divide comes from those
    with the lowest scores.
    """
    scores = torch.cat(list(layers))
    ranks = torch.empty(len(scores), dtype=torch.long)
    start = 0
    for part in layers:
        order = lowest(part, candidates[start : start + len(part)], len(part)) + start
        ranks[order] = torch.arange(len(order))
        start += len(part)
    by_score = lowest(scores, candidates, len(scores))
    return by_score[ranks[by_score].argsort(stable=True)][:count]


def allowance(total: int, pruned: int, budget: int, share: float) -> int:
    """Return how many channels a request may prune: its budget, limited by the cap."""
    # The small number is for rounding: 0.29 * 100 is 28.999...
    return max(0, min(budget, math.floor(share * total + 1e-9) - pruned))


def middle_layers(count: int) -> tuple[int, ...]:
    """Return the layers that are pruned by default: not the first four, not the last two.

    The original uses layers 4 to 29 of 32. A model that would have none left uses all.
    """
    if count <= _SPARED_FIRST + _SPARED_LAST:
        return tuple(range(count))
    return tuple(range(_SPARED_FIRST, count - _SPARED_LAST))
