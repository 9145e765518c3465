"""The risk of every channel for the current request."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

import torch

_MAD_TO_DEVIATION = 1.4826
_MEAN_DEVIATION_TO_DEVIATION = 1.2533


def standardise(scores: torch.Tensor, widths: Sequence[int]) -> torch.Tensor:
    """Return (score - median) / (1.4826 MAD), within each module of the given widths.

    Where the MAD is 0 the mean absolute deviation times 1.2533 takes its place; where that is 0
    too, all scores of the module are equal and the result is 0.
    """
    result = torch.empty_like(scores)
    for places in _places_by_width(tuple(widths), scores.device):
        result[places] = _standardise_rows(scores[places])
    return result


@lru_cache(maxsize=4)
def _places_by_width(widths: tuple[int, ...], device: torch.device) -> list[torch.Tensor]:
    """Return the channel indices of all modules, one table [modules, width] per width.

    A model has hundreds of modules but few widths, so all modules of a width are standardised at
    once.
    """
    starts: dict[int, list[int]] = {}
    for width, end in zip(widths, accumulate(widths), strict=True):
        starts.setdefault(width, []).append(end - width)
    return [
        torch.tensor(firsts, device=device).unsqueeze(1) + torch.arange(width, device=device)
        for width, firsts in starts.items()
    ]


def _standardise_rows(scores: torch.Tensor) -> torch.Tensor:
    centred = scores - scores.quantile(0.5, dim=1, keepdim=True)
    distance = centred.abs()
    spread = _MAD_TO_DEVIATION * distance.quantile(0.5, dim=1, keepdim=True)
    mean = _MEAN_DEVIATION_TO_DEVIATION * distance.mean(1, keepdim=True)
    spread = torch.where(spread == 0, mean, spread)
    return torch.where(spread == 0, torch.zeros_like(centred), centred / spread)


def current_risk(
    forget: torch.Tensor,
    retain: torch.Tensor,
    forget_weight: float,
    retain_weight: float,
    margin: float,
) -> torch.Tensor:
    """Return chi of eq. current_pathway_risk from the standardised scores."""
    return (forget_weight * forget - retain_weight * retain - margin).clamp(min=0)
