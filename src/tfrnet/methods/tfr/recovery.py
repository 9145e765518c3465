"""Recovery: raising dormant channels that retained abilities need."""

from __future__ import annotations

import torch

from tfrnet.masking.mask import dormant
from tfrnet.methods.tfr.config import TFRConfig


def candidate_pool(
    mask: torch.Tensor,
    chi: torch.Tensor,
    previous_priority: torch.Tensor,
    config: TFRConfig,
) -> torch.Tensor:
    """Return Q as booleans (eq. recovery_candidate_pool): dormant, of low risk now and before."""
    return (
        dormant(mask, config.dormant_threshold)
        & (chi <= config.current_risk_ceiling)
        & (previous_priority <= config.history_risk_ceiling)
    )


def recovery_score(
    retain: torch.Tensor,
    chi: torch.Tensor,
    previous_priority: torch.Tensor,
    previous_hits: torch.Tensor,
    config: TFRConfig,
) -> torch.Tensor:
    """Return upsilon (eq. recovery_score): retained utility less the three risks."""
    return (
        config.retain_gain * retain
        - config.current_penalty * chi
        - config.history_penalty * previous_priority
        - config.hit_penalty * previous_hits
    )


def recovery_set(
    pool: torch.Tensor, score: torch.Tensor, suppressed: torch.Tensor, threshold: float
) -> torch.Tensor:
    """Return the indices of U (eq. recovery_selection): in the pool and above the threshold.

    Without `suppressed`, the indices of P.
    """
    chosen = pool & (score > threshold)
    chosen[suppressed] = False
    return chosen.nonzero().flatten()


def recover(mask: torch.Tensor, recovered: torch.Tensor, strength: float) -> torch.Tensor:
    """Return the mask with the recovered channels raised towards 1, clipped to [0, 1]."""
    result = mask.clone()
    result[recovered] += strength * (1 - result[recovered])
    return result.clamp(0, 1)
