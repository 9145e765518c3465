"""A few solved steps to where every forget example counts as forgotten, each within the guard.

Beyond the paper. Which suppressed channels may be raised again is decided as in the paper; how far
every channel moves is the solution of `least_move`. What a step has taken from retain examples
beyond what was foreseen, the next one gives back.
"""

from __future__ import annotations

import math

import torch

from tfrnet.config import TFRConfig
from tfrnet.tfr.fisher import fisher_step, running_fisher
from tfrnet.tfr.guard import Verdict
from tfrnet.tfr.least_move import Bounds, Rows, least_move
from tfrnet.tfr.memory import ChannelState
from tfrnet.tfr.odds import certainty_weights, log_odds, log_odds_gradients
from tfrnet.tfr.probe import Probe
from tfrnet.tfr.scoring import ExampleGradients
from tfrnet.tfr.sketch import with_rows
from tfrnet.tfr.update import Candidate, Evidence, judge, recovery_pool

# A request ends when less than this share of the guard's tolerance is left.
_USED_UP = 0.2
# A step aims this far below its target, so that none is spent on what the last one missed by.
_BEYOND = 0.5


def solve_update(
    state: ChannelState,
    evidence: Evidence,
    guard_before: float,
    probe: Probe,
    config: TFRConfig,
) -> Candidate:
    """Return the mask after `steps` solved steps, each shortened until the guard agrees."""
    assert state.fisher is not None and evidence.retain.examples is not None
    retain = RetainRows(probe, evidence.retain.examples, config.retain_sharpness)
    fisher = running_fisher(state.fisher, retain.mean_square(), config.fisher_decay)
    pool = recovery_pool(state, evidence, config)
    earlier = state.forgotten if config.use_history else None
    mask, attempts, deep = state.mask, 0, False
    verdict = judge(guard_before, guard_before, config)
    for _ in range(config.steps):
        forget = probe.forget_margins(mask, deep)
        # What is not forgotten need not be remembered. After the last step that is only foreseen.
        forgotten = forget.gradients[forget.values < 0] if not deep else forget.gradients
        if deep or bool((forget.values <= config.forget_margin).all()):
            if not _is_cheap(guard_before, verdict, config):
                break
            if not deep:
                deep, forget = True, probe.forget_margins(mask, True)
        falls = wanted_falls(forget.values, deep, config)
        if not bool((falls > 0).any()):
            break
        cost = move_cost(fisher, config)
        falls = cheapest(falls, forget, cost, _target(deep, config), config.focus)
        lost = retain.lost(mask) if attempts else forget.values.new_zeros(len(retain.rows))
        wanted = wanted_rows(forget, falls, retain.rows, lost, earlier, config)
        wanted += held_rows(probe.guard_rows().to(mask), config.retain_stiffness)
        is_low = forget.values <= _target(deep, config)
        wanted += held_rows(forget.gradients[is_low], config.memory_stiffness)
        move = solved_step(mask, wanted, cost, pool, config)
        trial, tried, share, tries = guarded_step(mask, move, verdict, probe, config)
        attempts += tries
        if not tried.accepted:
            if mask is state.mask:
                mask, verdict = trial, tried
            break
        mask, verdict = trial, tried
        forgotten = forget.gradients[(forget.values < share * falls) | deep]
        if share < 1 and tried.limit - tried.after < _USED_UP * (tried.limit - guard_before):
            break
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
        "" if attempts else "nothing to do: every example is at forget_margin already",
    )


def guarded_step(
    mask: torch.Tensor, move: torch.Tensor, now: Verdict, probe: Probe, config: TFRConfig
) -> tuple[torch.Tensor, Verdict, float, int]:
    """Return the mask after as much of a move as the guard allows, its verdict, share and tries."""
    share = 1.0
    for tries in range(1, config.backtracks + 2):
        trial = fisher_step(mask, move, share, config.dormant_threshold, config.max_sparsity)
        tried = judge(now.before, probe.guard_loss(trial), config)
        if tried.accepted or tries > config.backtracks:
            break
        share *= _shorter(now.after, tried, config)
    return trial, tried, share, tries


class RetainRows:
    """Gradients of retain examples' log-odds: many of the untouched model, then some of now."""

    def __init__(self, probe: Probe, now: ExampleGradients, sharpness: float) -> None:
        rows = weighed_rows(now, sharpness)
        self.rows = torch.cat([probe.anchor_rows().to(rows), rows])
        self._probe = probe
        self._odds = log_odds(now.values)
        self._weights = certainty_weights(now.values, sharpness)

    def mean_square(self) -> torch.Tensor:
        """Return the mean over rows of their squares: the retain Fisher's diagonal."""
        norms: torch.Tensor = torch.linalg.vector_norm(self.rows, dim=0)
        return norms.square() / len(self.rows)

    def lost(self, mask: torch.Tensor) -> torch.Tensor:
        """Return what every row has lost since the request began; of the first kind, 0."""
        losses = self._probe.retain_losses(mask).to(self._odds)
        lost = self._weights * (self._odds - log_odds(losses))
        return torch.cat([lost.new_zeros(len(self.rows) - len(lost)), lost])


def weighed_rows(found: ExampleGradients, sharpness: float) -> torch.Tensor:
    """Return the gradients [N, C] of examples' log-odds, weighed by how their answers count."""
    rows = log_odds_gradients(found.gradients, found.values)
    return rows.mul_(certainty_weights(found.values, sharpness).to(rows).unsqueeze(1))


def wanted_falls(margins: torch.Tensor, deep: bool, config: TFRConfig) -> torch.Tensor:
    """Return how far each margin is to fall in the next step: 0 where it is low enough."""
    target = _target(deep, config)
    falls = (margins - target + _BEYOND).clamp(max=config.step_margin)
    return torch.where(margins > target, falls, torch.zeros_like(falls))


def cheapest(
    falls: torch.Tensor,
    forget: ExampleGradients,
    cost: torch.Tensor,
    target: float,
    share: float,
) -> torch.Tensor:
    """Return the falls of this share of the examples that are to fall; the others have to wait.

    An example alone costs (its whole way to the target)^2 over the square of its gradient, each
    channel counted by what its move costs.
    """
    if share == 1:
        return falls
    falling = (falls > 0).nonzero().flatten()
    way = (forget.values - target)[falling].to(cost)
    costs = way.square() / (forget.gradients[falling].square() / cost).sum(1)
    # Without what rounding adds to a product that is meant to be whole.
    count = math.ceil(share * len(falling) - 1e-9)
    chosen = falling[costs.sort(stable=True).indices[:count]]
    kept = torch.zeros_like(falls)
    kept[chosen] = falls[chosen]
    return kept


def wanted_rows(
    forget: ExampleGradients,
    falls: torch.Tensor,
    retain: torch.Tensor,
    lost: torch.Tensor,
    earlier: torch.Tensor | None,
    config: TFRConfig,
) -> list[Rows]:
    """Return what a step is asked for: forget examples fall, all else stays or comes back."""
    rows = forget.gradients
    asked = (falls > 0).to(rows.device)
    wanted = [Rows(rows[asked], falls.to(rows)[asked], config.forget_stiffness)]
    if config.use_retain:
        stiffness = config.retain_stiffness / max(1, len(retain))
        wanted.append(Rows(retain, -lost.to(rows), stiffness))
    if earlier is not None:
        wanted += held_rows(earlier[earlier.any(1)].to(rows), config.memory_stiffness)
    return wanted


def held_rows(rows: torch.Tensor, stiffness: float) -> list[Rows]:
    """Return rows that are to stay in place, or nothing where there are none."""
    return [Rows(rows, rows.new_zeros(len(rows)), stiffness)] if len(rows) else []


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
    if config.budget < move.numel():
        # The largest entries alone would fall short, so they are solved for again.
        largest = (move.abs() * cost.sqrt()).sort(descending=True, stable=True).indices
        move = least_move(wanted, cost, bounds.only(largest[: config.budget]))
    return move


def _target(deep: bool, config: TFRConfig) -> float:
    return config.deep_margin if deep else config.forget_margin


def _is_cheap(guard_before: float, verdict: Verdict, config: TFRConfig) -> bool:
    if math.isinf(verdict.limit):
        return True
    return verdict.after - guard_before <= config.cheap_share * (verdict.limit - guard_before)


def _shorter(now: float, refused: Verdict, config: TFRConfig) -> float:
    """Return the share of a refused step to try next, as if the loss rose with its square."""
    rise, allowed = refused.after - now, refused.limit - now
    if not math.isfinite(rise) or rise <= 0:
        return config.backtrack_factor
    return min(0.8, max(0.05, 0.9 * math.sqrt(max(0.0, allowed) / rise)))
