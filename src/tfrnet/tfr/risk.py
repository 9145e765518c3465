"""From scores to the risk of the current request."""

from __future__ import annotations

from collections.abc import Sequence

import torch

_MAD_TO_DEVIATION = 1.4826
_MEAN_DEVIATION_TO_DEVIATION = 1.2533


def standardise(scores: torch.Tensor, widths: Sequence[int]) -> torch.Tensor:
    """Return (score - median) / (1.4826 MAD), within each module of the given widths.

    Where the MAD is 0 the mean absolute deviation times 1.2533 takes its place; where that is 0
    too, all scores of the module are equal and the result is 0.
    """
    return torch.cat([_standardise_module(part) for part in torch.split(scores, list(widths))])


def _standardise_module(scores: torch.Tensor) -> torch.Tensor:
    centred = scores - scores.quantile(0.5)
    spread = _MAD_TO_DEVIATION * centred.abs().quantile(0.5)
    if spread == 0:
        spread = _MEAN_DEVIATION_TO_DEVIATION * centred.abs().mean()
    if spread == 0:
        return torch.zeros_like(scores)
    return centred / spread


def current_risk(
    forget: torch.Tensor,
    retain: torch.Tensor,
    forget_weight: float,
    retain_weight: float,
    margin: float,
) -> torch.Tensor:
    """Return chi of eq. current_pathway_risk from the standardised scores."""
    return (forget_weight * forget - retain_weight * retain - margin).clamp(min=0)
