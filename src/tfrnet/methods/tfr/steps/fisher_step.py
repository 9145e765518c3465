"""Small steps along the forget gradient over the retain Fisher, each within the guard."""

from __future__ import annotations

import torch

from tfrnet.core.guard import Verdict, guard_limit
from tfrnet.methods.tfr.config import TFRConfig
from tfrnet.methods.tfr.probe import Probe
from tfrnet.methods.tfr.scoring import ChannelScores
from tfrnet.methods.tfr.state import ChannelState
from tfrnet.methods.tfr.steps.fisher import fisher_direction, fisher_step, running_fisher
from tfrnet.methods.tfr.update import Candidate, Evidence, judge, with_recovery


def fisher_update(
    state: ChannelState,
    evidence: Evidence,
    guard_before: float,
    probe: Probe,
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
            forget, retain = probe.scores(lowered)
        if forget.lowest_loss >= config.forget_ceiling:
            break
        direction = step_direction(forget, retain, fisher, config)
        loss = verdict.after
        for _ in range(config.backtracks + 1):
            attempts += 1
            trial = fisher_step(
                lowered, direction, size, config.dormant_threshold, config.max_sparsity
            )
            tried = _judge_step(guard_before, loss, probe.guard_loss(trial), config)
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
        with_recovered = judge(guard_before, probe.guard_loss(mask), config)
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
