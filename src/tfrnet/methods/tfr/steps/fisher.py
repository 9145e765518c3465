"""The Fisher-weighted step: moves many channels a little, instead of a few all the way.

Beyond the paper. A channel moves in proportion to how much suppressing it raises the forget loss,
minus how much it raises the retain loss, divided by how sensitive the retain loss is to it.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from tfrnet.core.guard import GuardLoss, Verdict, guard_limit, judge
from tfrnet.methods.tfr.config import TFRConfig
from tfrnet.methods.tfr.scoring import ChannelScores
from tfrnet.methods.tfr.state import ChannelState
from tfrnet.methods.tfr.steps.common import Candidate, RiskScores, with_recovery
from tfrnet.methods.tfr.suppression import lower
from tfrnet.methods.tfr.trial_model import TrialModel


def fisher_update(
    state: ChannelState,
    scores: RiskScores,
    guard_before: GuardLoss,
    model: TrialModel,
    config: TFRConfig,
) -> Candidate:
    """Return several small Fisher-weighted steps, then recovery, then the guard.

    Every step is shortened until the guard loss stays within `step_guard` of the step before and
    within the request's own tolerance. Steps end when every example counts as forgotten.
    """
    assert state.fisher is not None
    fisher = running_fisher(state.fisher, scores.retain.square, config.fisher_decay)
    lowered, attempts = state.mask, 0
    verdict = judge(guard_before, guard_before, config, model.ceiling)
    forget, retain = scores.forget, scores.retain
    size = config.suppress_strength
    for step in range(config.steps):
        model.report.begin(step + 1, config.steps)
        if step:
            forget, retain = model.scores(lowered, config.forget_ceiling)
        if forget.lowest_loss >= config.forget_ceiling:
            break
        direction = step_direction(forget, retain, fisher, config)
        for _ in range(config.backtracks + 1):
            attempts += 1
            trial = lower(lowered, direction, size, config.dormant_threshold, config.max_sparsity)
            request = judge(guard_before, model.guard_loss(trial), config, model.ceiling)
            tried = _of_step(request, verdict, config)
            if tried.accepted:
                break
            size *= tried.shrink(config.backtrack_factor)
            model.report.again(attempts + 1, tried.reason)
        if not tried.accepted:
            if lowered is state.mask:
                refused = ChannelState(trial, scores.trajectory, fisher)
                moved = (trial < state.mask).nonzero().flatten()
                return Candidate(refused, tried, moved, attempts=attempts)
            break
        lowered, verdict = trial, request
        # The next step starts slightly larger than the one that the guard just accepted.
        size = min(config.suppress_strength, size / config.backtrack_factor)

    suppressed = (lowered < state.mask).nonzero().flatten()
    mask, pool, recovered = with_recovery(state, scores, lowered, suppressed, config)
    if recovered:
        with_recovered = judge(guard_before, model.guard_loss(mask), config, model.ceiling)
        if with_recovered.accepted:
            verdict = with_recovered
        else:
            # The steps alone passed the guard; only recovery fails it.
            mask, recovered = lowered, 0
    after = ChannelState(mask, scores.trajectory, fisher)
    note = "" if attempts else "nothing to do: every example is over forget_ceiling already"
    return Candidate(after, verdict, suppressed, pool, recovered, attempts, note)


def step_direction(
    forget: ChannelScores, retain: ChannelScores, fisher: torch.Tensor, config: TFRConfig
) -> torch.Tensor:
    """Return the direction of a step; with `use_retain=False`, the forget gradient alone."""
    gradient = retain.gradient
    if not config.use_retain:
        gradient, fisher = torch.zeros_like(gradient), torch.ones_like(fisher)
    return fisher_direction(forget.gradient, gradient, fisher, config.fisher_damping, config.budget)


def _of_step(request: Verdict, last: Verdict, config: TFRConfig) -> Verdict:
    """Return the verdict on one step, by the tighter of the step's and the request's limits.

    `last` is the verdict on the step before.
    """
    pairs = zip(request.groups, last.groups, strict=True)
    own = replace(
        request, before=last.after, groups=tuple(_of_step(*pair, config) for pair in pairs)
    )
    step_limit = guard_limit(last.after, config.step_guard, 0)
    if config.use_guard and step_limit < request.limit:
        return replace(own, limit=step_limit, what="guard loss of one step", of_stream=False)
    return own


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
