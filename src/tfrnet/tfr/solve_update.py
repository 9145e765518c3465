"""A few solved steps to where every forget example counts as forgotten, each within the guard.

Beyond the paper. Which suppressed channels may be raised again is decided as in the paper; how far
every channel moves is the solution of `least_move`.
"""

from __future__ import annotations

import math

import torch

from tfrnet.config import TFRConfig
from tfrnet.tfr.fisher import fisher_step, running_fisher
from tfrnet.tfr.guard import Verdict
from tfrnet.tfr.least_move import Bounds, least_move
from tfrnet.tfr.memory import ChannelState
from tfrnet.tfr.odds import certainty_weights, log_odds, log_odds_gradients
from tfrnet.tfr.probe import Probe
from tfrnet.tfr.scoring import ExampleGradients
from tfrnet.tfr.update import Candidate, Evidence, judge, recovery_pool

# A request ends when less than this share of the guard's tolerance is left.
_USED_UP = 0.2


def solve_update(
    state: ChannelState,
    evidence: Evidence,
    guard_before: float,
    probe: Probe,
    config: TFRConfig,
) -> Candidate:
    """Return the mask after `steps` solved steps, each shortened until the guard agrees."""
    assert state.fisher is not None and evidence.retain.examples is not None
    retain = retain_rows(evidence.retain.examples, config.retain_sharpness)
    fisher = running_fisher(state.fisher, retain.square().mean(0).cpu(), config.fisher_decay)
    pool = recovery_pool(state, evidence, config)
    mask, attempts = state.mask, 0
    verdict = judge(guard_before, guard_before, config)
    for _ in range(config.steps):
        forget = probe.forget_gradients(mask)
        move = solved_step(mask, forget, retain, fisher, pool, config)
        if move is None:
            break
        share, now = 1.0, verdict.after
        for _ in range(config.backtracks + 1):
            attempts += 1
            trial = fisher_step(mask, move, share, config.dormant_threshold, config.max_sparsity)
            tried = judge(guard_before, probe.guard_loss(trial), config)
            if tried.accepted:
                break
            share *= _shorter(now, tried, config)
        if not tried.accepted:
            if mask is state.mask:
                mask, verdict = trial, tried
            break
        mask, verdict = trial, tried
        if share < 1 and tried.limit - tried.after < _USED_UP * (tried.limit - guard_before):
            break
    return Candidate(
        ChannelState(mask, evidence.trajectory, fisher),
        verdict,
        (mask < state.mask).nonzero().flatten(),
        int(pool.sum()),
        int((mask > state.mask).sum()),
        attempts,
        "" if attempts else "nothing to do: every example is at forget_odds already",
    )


def retain_rows(retain: ExampleGradients, sharpness: float) -> torch.Tensor:
    """Return the gradients [N, C] of the retain examples' log-odds, weighed by how they count."""
    rows = log_odds_gradients(retain.gradients, retain.losses)
    return rows * certainty_weights(retain.losses, sharpness).to(rows).unsqueeze(1)


def solved_step(
    mask: torch.Tensor,
    forget: ExampleGradients,
    retain: torch.Tensor,
    fisher: torch.Tensor,
    pool: torch.Tensor,
    config: TFRConfig,
) -> torch.Tensor | None:
    """Return how far each channel is lowered, or None where no example is left to forget."""
    odds = log_odds(forget.losses)
    known = odds > config.forget_odds
    if not bool(known.any()):
        return None
    rows = log_odds_gradients(forget.gradients, forget.losses)[known.to(forget.gradients.device)]
    falls = (odds[known] - config.forget_odds).clamp(max=config.step_odds).to(rows)
    home = rows.device
    cost = (fisher + config.fisher_damping * fisher.mean()).to(home)
    if not config.use_retain:
        retain, cost = retain[:0], torch.ones_like(cost)
    lowest = torch.where(pool, mask - 1, torch.zeros_like(mask)).to(home)
    bounds = Bounds(lowest, mask.to(home))
    stiffness = config.forget_stiffness, config.retain_stiffness
    move = least_move(rows, falls, retain, cost, bounds, *stiffness)
    if config.budget < move.numel():
        # The largest entries alone would fall short, so they are solved for again.
        largest = (move.abs() * cost.sqrt()).sort(descending=True, stable=True).indices
        few = bounds.only(largest[: config.budget])
        move = least_move(rows, falls, retain, cost, few, *stiffness)
    return move.cpu()


def _shorter(now: float, refused: Verdict, config: TFRConfig) -> float:
    """Return the share of a refused step to try next, as if the loss rose with its square."""
    rise, allowed = refused.after - now, refused.limit - now
    if not math.isfinite(rise) or rise <= 0:
        return config.backtrack_factor
    return min(0.8, max(0.05, 0.9 * math.sqrt(max(0.0, allowed) / rise)))
