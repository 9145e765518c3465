"""A few solved steps to where every forget example counts as forgotten, each within the guard.

Beyond the paper. Which suppressed channels may be raised again is decided as in the paper; how far
every channel moves is the solution of `least_move`. What a step has taken from retained examples
beyond what was foreseen, the next one gives back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from tfrnet.core.guard import Verdict
from tfrnet.methods.tfr.config import TFRConfig
from tfrnet.methods.tfr.probe import Probe
from tfrnet.methods.tfr.state import ChannelState
from tfrnet.methods.tfr.steps.constraints import Kept, held_rows
from tfrnet.methods.tfr.steps.fisher import fisher_step
from tfrnet.methods.tfr.steps.least_move import Bounds, Rows, least_move
from tfrnet.methods.tfr.steps.sketch import with_rows
from tfrnet.methods.tfr.update import Candidate, Evidence, judge, recovery_pool

# A step aims this far below its target, so that none is spent on what the last one missed by.
_BEYOND = 0.5
# How much farther the next step may reach after one that went its whole way.
_FARTHER = 1.5
_LEAST_SHARE = 0.1


def solve_update(
    state: ChannelState,
    evidence: Evidence,
    guard_before: float,
    probe: Probe,
    config: TFRConfig,
) -> Candidate:
    """Return the mask after `steps` solved steps, each shortened until the guard agrees."""
    kept = Kept(state, evidence, probe, config)
    fisher = kept.running_fisher(state.fisher)
    cost = move_cost(fisher, config)
    pool = recovery_pool(state, evidence, config)
    mask, attempts, deep, reach = state.mask, 0, False, config.step_margin
    verdict = judge(guard_before, guard_before, config)
    # Where no channel may move there is nothing to solve.
    for _ in range(0 if config.budget == 0 else config.steps):
        forget = probe.forget_margins(mask, deep)
        # What is not forgotten need not be remembered. After the last step that is only foreseen.
        forgotten = forget.gradients[(forget.values < 0) | deep]
        if deep or bool((forget.values <= config.forget_margin).all()):
            if not _is_cheap(verdict, config):
                break
            if not deep:
                deep, forget = True, probe.forget_margins(mask, True)
        target = config.deep_margin if deep else config.forget_margin
        falls = wanted_falls(forget.values, target, reach)
        if deep:
            falls[probe.without_depth.to(falls.device)] = 0
        if not bool((falls > 0).any()):
            break
        wanted = [*forget_rows(forget.gradients, falls, config), *kept.rows(mask)]
        with probe.account.time("solve"):
            move = solved_step(mask, wanted, cost, pool, config)
        step = guarded_step(mask, move, verdict, probe)
        attempts += step.tries
        if step.verdict.accepted:
            mask, verdict = step.mask, step.verdict
            kept.take_step(step.guard_losses)
            forgotten = forget.gradients[(forget.values < step.share * falls) | deep]
            reach = min(config.step_margin, reach * (_FARTHER if step.share == 1 else step.share))
        elif mask is state.mask:
            mask, verdict = step.mask, step.verdict
            break
        else:
            reach *= max(step.share, _LEAST_SHARE)
    remembered = state.forgotten
    if remembered is not None and attempts:
        remembered = with_rows(remembered, forgotten)
    return Candidate(
        ChannelState(mask, evidence.trajectory, fisher, remembered),
        verdict,
        (mask < state.mask).nonzero().flatten(),
        int(pool.sum()),
        int((mask > state.mask).sum()),
        attempts,
        _idle_reason(config) if not attempts else "",
    )


@dataclass(frozen=True)
class Step:
    """A mask that was tried last, with what the guard says of it."""

    mask: torch.Tensor
    verdict: Verdict
    guard_losses: torch.Tensor
    share: float
    tries: int


def guarded_step(mask: torch.Tensor, move: torch.Tensor, now: Verdict, probe: Probe) -> Step:
    """Go as much of a move as the guard allows, or try as often as is allowed."""
    config, share = probe.config, 1.0
    for tries in range(1, config.backtracks + 2):
        trial = fisher_step(mask, move, share, config.dormant_threshold, config.max_sparsity)
        losses = probe.guard_losses(trial)
        tried = judge(now.before, float(losses.mean()), config)
        if tried.accepted or tries > config.backtracks:
            break
        share *= _shorter(now.after, tried, config)
    return Step(trial, tried, losses, share, tries)


def wanted_falls(margins: torch.Tensor, target: float, reach: float) -> torch.Tensor:
    """Return how far each margin is to fall in the next step: 0 where it is low enough."""
    falls = (margins - target + _BEYOND).clamp(max=reach)
    return torch.where(margins > target, falls, torch.zeros_like(falls))


def forget_rows(gradients: torch.Tensor, falls: torch.Tensor, config: TFRConfig) -> list[Rows]:
    """Return what is asked of the forget examples: to fall, or to stay where they are low."""
    falling = falls > 0
    asked = Rows(gradients[falling], falls[falling], config.forget_stiffness)
    return [asked, *held_rows(gradients[~falling], config.memory_stiffness)]


def move_cost(fisher: torch.Tensor, config: TFRConfig) -> torch.Tensor:
    """Return what it costs to move each channel: more where retained answers depend on it."""
    if not config.use_retain:
        return torch.ones_like(fisher)
    return fisher + config.fisher_damping * fisher.mean()


def solved_step(
    mask: torch.Tensor,
    wanted: list[Rows],
    cost: torch.Tensor,
    pool: torch.Tensor,
    config: TFRConfig,
) -> torch.Tensor:
    """Return how far each channel is lowered."""
    bounds = Bounds(torch.where(pool, mask - 1, torch.zeros_like(mask)), mask)
    move = least_move(wanted, cost, bounds)
    if config.budget is not None and config.budget < move.numel():
        # The largest entries alone would fall short, so they are solved for again.
        largest = (move.abs() * cost.sqrt()).sort(descending=True, stable=True).indices
        move = least_move(wanted, cost, bounds.only(largest[: config.budget]))
    return move


def _idle_reason(config: TFRConfig) -> str:
    if config.budget == 0:
        return "nothing to do: the budget is 0"
    return "nothing to do: every example is at forget_margin already"


def _is_cheap(verdict: Verdict, config: TFRConfig) -> bool:
    if math.isinf(verdict.limit):
        return True
    used = verdict.after - verdict.before
    return used <= config.cheap_share * (verdict.limit - verdict.before)


def _shorter(now: float, refused: Verdict, config: TFRConfig) -> float:
    """Return the share of a refused step to try next, as if the loss rose with its square."""
    rise, allowed = refused.after - now, refused.limit - now
    if not math.isfinite(rise) or rise <= 0:
        return config.backtrack_factor
    return min(0.8, max(0.05, 0.9 * math.sqrt(max(0.0, allowed) / rise)))
