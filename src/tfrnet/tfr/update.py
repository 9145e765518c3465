"""The two ways in which a request moves the mask. Each tries steps until the guard agrees."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from tfrnet.config import TFRConfig
from tfrnet.tfr.fisher import fisher_direction, fisher_step, running_fisher
from tfrnet.tfr.guard import Verdict, guard_limit
from tfrnet.tfr.memory import ChannelState
from tfrnet.tfr.recovery import candidate_pool, recover, recovery_score, recovery_set
from tfrnet.tfr.risk import current_risk, standardise
from tfrnet.tfr.scoring import ChannelScores
from tfrnet.tfr.suppression import select_channels, suppress
from tfrnet.tfr.trajectory import Trajectory, advance

Score = Callable[[torch.Tensor], tuple[ChannelScores, ChannelScores]]
GuardLoss = Callable[[torch.Tensor], float]


@dataclass(frozen=True)
class Evidence:
    """What the scores under the incoming mask say of every channel."""

    forget: ChannelScores
    retain: ChannelScores
    retain_standardised: torch.Tensor
    chi: torch.Tensor
    trajectory: Trajectory


@dataclass(frozen=True)
class Candidate:
    """A tentative state and what led to it."""

    state: ChannelState
    verdict: Verdict
    suppressed: torch.Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))
    pool: int = 0
    recovered: int = 0
    attempts: int = 1
    note: str = ""

    @property
    def reason(self) -> str:
        """The verdict in words, or why an accepted request changed little or nothing."""
        return self.note if self.note and self.verdict.accepted else self.verdict.reason


def gather_evidence(
    state: ChannelState,
    forget: ChannelScores,
    retain: ChannelScores,
    widths: list[int],
    config: TFRConfig,
) -> Evidence:
    """Standardise the scores, contrast them, and advance the trajectory."""
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
    return Evidence(forget, retain, retain_standardised, chi, trajectory)


def with_recovery(
    state: ChannelState,
    evidence: Evidence,
    lowered: torch.Tensor,
    suppressed: torch.Tensor,
    config: TFRConfig,
) -> tuple[torch.Tensor, int, int]:
    """Return the mask after recovery, |Q| and |U|."""
    previous = state.trajectory
    priority, hits = previous.priority, previous.hits
    if not config.use_history:
        priority, hits = torch.zeros_like(priority), torch.zeros_like(hits)
    pool = candidate_pool(lowered, evidence.chi, priority, config)
    if not config.use_recovery:
        return lowered, int(pool.sum()), 0
    score = recovery_score(evidence.retain_standardised, evidence.chi, priority, hits, config)
    recovered = recovery_set(pool, score, suppressed, config.recovery_threshold)
    mask = recover(lowered, recovered, config.recover_strength)
    return mask, int(pool.sum()), recovered.numel()


def judge(before: float, after: float, config: TFRConfig) -> Verdict:
    """Ask the guard of a whole request; `use_guard=False` accepts any finite loss."""
    limit = guard_limit(before, config.guard_relative, config.guard_absolute)
    return Verdict(before, after, limit if config.use_guard else math.inf)


def select_update(
    state: ChannelState,
    evidence: Evidence,
    guard_before: float,
    guard_loss: GuardLoss,
    config: TFRConfig,
) -> Candidate:
    """Return the paper's update: suppress the channels of highest priority, recover, guard.

    With `backtracks`, a rejected update is tried again with a smaller budget.
    """
    budget = config.budget
    for attempt in range(1, config.backtracks + 2):
        selected = select_channels(
            state.mask,
            evidence.trajectory.priority,
            budget,
            config.dormant_threshold,
            config.max_sparsity,
        )
        lowered = suppress(state.mask, selected, config.suppress_strength)
        mask, pool, recovered = with_recovery(state, evidence, lowered, selected, config)
        verdict = judge(guard_before, guard_loss(mask), config)
        candidate = Candidate(
            ChannelState(mask, evidence.trajectory, state.fisher),
            verdict,
            selected,
            pool,
            recovered,
            attempt,
            "" if selected.numel() else "no channel could be suppressed",
        )
        if verdict.accepted or selected.numel() <= 1:
            break
        budget = max(1, int(selected.numel() * verdict.shrink(config.backtrack_factor)))
    return candidate


def fisher_update(
    state: ChannelState,
    evidence: Evidence,
    guard_before: float,
    guard_loss: GuardLoss,
    score: Score,
    config: TFRConfig,
) -> Candidate:
    """Return several small Fisher-weighted steps, then recovery, then the guard.

    Every step is shortened until the guard loss stays within `step_guard` of the step before and
    within the request's own tolerance. Steps end when every example counts as forgotten.
    """
    assert state.fisher is not None
    fisher = running_fisher(state.fisher, evidence.retain.square, config.fisher_decay)
    lowered, attempts = state.mask, 0
    verdict = judge(guard_before, guard_before, config)
    forget, retain = evidence.forget, evidence.retain
    size = config.suppress_strength
    for step in range(config.steps):
        if step:
            forget, retain = score(lowered)
        if forget.lowest_loss >= config.forget_ceiling:
            break
        direction = step_direction(forget, retain, fisher, config)
        loss = verdict.after
        for _ in range(config.backtracks + 1):
            attempts += 1
            trial = fisher_step(
                lowered, direction, size, config.dormant_threshold, config.max_sparsity
            )
            tried = _judge_step(guard_before, loss, guard_loss(trial), config)
            if tried.accepted:
                break
            size *= tried.shrink(config.backtrack_factor)
        if not tried.accepted:
            if lowered is state.mask:
                refused = ChannelState(trial, evidence.trajectory, fisher)
                moved = (trial < state.mask).nonzero().flatten()
                return Candidate(refused, tried, moved, attempts=attempts)
            break
        lowered, verdict = trial, judge(guard_before, tried.after, config)
        # The next step starts a notch above what the guard has just allowed.
        size = min(config.suppress_strength, size / config.backtrack_factor)

    suppressed = (lowered < state.mask).nonzero().flatten()
    mask, pool, recovered = with_recovery(state, evidence, lowered, suppressed, config)
    if recovered:
        with_recovered = judge(guard_before, guard_loss(mask), config)
        if with_recovered.accepted:
            verdict = with_recovered
        else:
            # The steps alone have passed; recovery is what would break the guard.
            mask, recovered = lowered, 0
    after = ChannelState(mask, evidence.trajectory, fisher)
    note = "" if attempts else "nothing to do: every example is over forget_ceiling already"
    return Candidate(after, verdict, suppressed, pool, recovered, attempts, note)


def step_direction(
    forget: ChannelScores, retain: ChannelScores, fisher: torch.Tensor, config: TFRConfig
) -> torch.Tensor:
    """Return where a step goes; with `use_retain=False` the forget gradient alone decides."""
    gradient = retain.gradient
    if not config.use_retain:
        gradient, fisher = torch.zeros_like(gradient), torch.ones_like(fisher)
    return fisher_direction(forget.gradient, gradient, fisher, config.fisher_damping, config.budget)


def _judge_step(request_before: float, before: float, after: float, config: TFRConfig) -> Verdict:
    """Ask the guard of one step: the tighter of the step's and the request's limit."""
    request = judge(request_before, after, config)
    step_limit = guard_limit(before, config.step_guard, 0)
    if config.use_guard and step_limit < request.limit:
        return Verdict(before, after, step_limit, "guard loss of one step")
    return Verdict(before, after, request.limit)
