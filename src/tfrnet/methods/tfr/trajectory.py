"""The memory of each channel's risk over requests (eqs. risk_ema to trajectory_priority)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tfrnet.methods.tfr.config import TFRConfig


@dataclass(frozen=True)
class Trajectory:
    """Five numbers per channel; the names are part of the state's format."""

    risk: torch.Tensor
    velocity: torch.Tensor
    variance: torch.Tensor
    hits: torch.Tensor
    priority: torch.Tensor


def risk_level(previous: torch.Tensor, chi: torch.Tensor, decay: float) -> torch.Tensor:
    """Return mu_t (eq. risk_ema)."""
    return decay * previous + (1 - decay) * chi


def risk_variance(
    previous: torch.Tensor, chi: torch.Tensor, risk: torch.Tensor, decay: float
) -> torch.Tensor:
    """Return sigma^2_t (eq. risk_variance), around the new risk level."""
    return decay * previous + (1 - decay) * (chi - risk).square()


def hit_threshold(chi: torch.Tensor, quantile: float) -> torch.Tensor:
    """Return kappa_t: a quantile of the strictly positive risks, 0 where there is none."""
    # In float64, so that interpolation does not round up to the next risk.
    positive = chi[chi > 0].double()
    return positive.quantile(quantile) if positive.numel() else positive.new_zeros(())


def hit_memory(
    previous: torch.Tensor, chi: torch.Tensor, threshold: torch.Tensor, decay: float
) -> torch.Tensor:
    """Return omega_t (eq. risk_hit_memory)."""
    return decay * previous + (1 - decay) * (chi > threshold).to(chi)


def trajectory_priority(
    risk: torch.Tensor,
    velocity: torch.Tensor,
    acceleration: torch.Tensor,
    variance: torch.Tensor,
    hits: torch.Tensor,
    hit_weight: float,
) -> torch.Tensor:
    """Return Gamma_t (eq. trajectory_priority)."""
    stability = 1 + velocity.abs() + acceleration.abs() + variance.sqrt()
    return risk * (1 + hit_weight * hits) / stability


def advance(previous: Trajectory, chi: torch.Tensor, config: TFRConfig) -> Trajectory:
    """Return the memory after a request whose risks are `chi`."""
    risk = risk_level(previous.risk, chi, config.risk_decay)
    velocity = risk - previous.risk
    acceleration = velocity - previous.velocity
    variance = risk_variance(previous.variance, chi, risk, config.variance_decay)
    threshold = hit_threshold(chi, config.hit_quantile)
    hits = hit_memory(previous.hits, chi, threshold, config.hit_decay)
    priority = trajectory_priority(risk, velocity, acceleration, variance, hits, config.hit_weight)
    return Trajectory(risk, velocity, variance, hits, priority)
