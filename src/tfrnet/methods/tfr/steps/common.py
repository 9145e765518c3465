"""What the steps share: the risk of every channel, recovery, and the candidate state."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from tfrnet.core.guard import Verdict
from tfrnet.methods.tfr.config import TFRConfig
from tfrnet.methods.tfr.recovery import candidate_pool, recover, recovery_score, recovery_set
from tfrnet.methods.tfr.risk import current_risk, standardise
from tfrnet.methods.tfr.scoring import ChannelScores
from tfrnet.methods.tfr.state import ChannelState
from tfrnet.methods.tfr.trajectory import Trajectory, advance


@dataclass(frozen=True)
class RiskScores:
    """Scores, risk and trajectory of every channel under the incoming mask."""

    forget: ChannelScores
    retain: ChannelScores
    retain_standardised: torch.Tensor
    chi: torch.Tensor
    trajectory: Trajectory


@dataclass(frozen=True)
class Candidate:
    """A candidate for the new state, with the guard's verdict.

    `shortfall` says that it forgets too little to be accepted, even if the guard would.
    """

    state: ChannelState
    verdict: Verdict
    suppressed: torch.Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))
    pool: int = 0
    recovered: int = 0
    attempts: int = 1
    note: str = ""
    shortfall: str = ""

    @property
    def accepted(self) -> bool:
        """Whether the guard agrees and enough is forgotten."""
        return self.verdict.accepted and not self.shortfall

    @property
    def reason(self) -> str:
        """The verdict in words, or why a request is rejected or changed little or nothing."""
        if self.verdict.accepted:
            return self.shortfall or self.note or self.verdict.reason
        return "; ".join(part for part in (self.shortfall, self.verdict.reason) if part)


def score_risk(
    state: ChannelState,
    forget: ChannelScores,
    retain: ChannelScores,
    widths: list[int],
    config: TFRConfig,
) -> RiskScores:
    """Compute the risk from the scores and advance the trajectory."""
    # Suppressing a channel raises the loss where dL/dm is negative.
    forget_score = -forget.signed if config.signed_scores else forget.magnitude
    retain_standardised = standardise(retain.magnitude, widths)
    chi = current_risk(
        standardise(forget_score, widths),
        retain_standardised,
        config.forget_weight,
        config.retain_weight if config.use_retain else 0.0,
        config.risk_margin,
    )
    trajectory = advance(state.trajectory, chi, config)
    return RiskScores(forget, retain, retain_standardised, chi, trajectory)


def recovery_pool(state: ChannelState, scores: RiskScores, config: TFRConfig) -> torch.Tensor:
    """Return which suppressed channels may be raised: those of low risk now and before."""
    if not config.use_recovery:
        return torch.zeros_like(state.mask, dtype=torch.bool)
    pool = (state.mask < 1) & (scores.chi <= config.current_risk_ceiling)
    if config.use_history:
        pool &= state.trajectory.priority <= config.history_risk_ceiling
    return pool


def with_recovery(
    state: ChannelState,
    scores: RiskScores,
    lowered: torch.Tensor,
    suppressed: torch.Tensor,
    config: TFRConfig,
) -> tuple[torch.Tensor, int, int]:
    """Return the mask after recovery, |Q| and |U|."""
    previous = state.trajectory
    priority, hits = previous.priority, previous.hits
    if not config.use_history:
        priority, hits = torch.zeros_like(priority), torch.zeros_like(hits)
    pool = candidate_pool(lowered, scores.chi, priority, config)
    if not config.use_recovery:
        return lowered, int(pool.sum()), 0
    score = recovery_score(scores.retain_standardised, scores.chi, priority, hits, config)
    recovered = recovery_set(pool, score, suppressed, config.recovery_threshold)
    mask = recover(lowered, recovered, config.recover_strength)
    return mask, int(pool.sum()), recovered.numel()
