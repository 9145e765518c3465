"""Solved steps of a mask, each within the guard.

Which lowered channels may be raised again is decided by the paper's pool; how far every channel
moves is the solution of `least_move`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tfrnet.core.guard import GuardLoss, Verdict, judge
from tfrnet.data.examples import Encoded
from tfrnet.methods.tfr.config import TFRConfig
from tfrnet.methods.tfr.scoring import ExampleGradients
from tfrnet.methods.tfr.sketch import with_falls, with_rows
from tfrnet.methods.tfr.state import ChannelState
from tfrnet.methods.tfr.steps.common import Candidate, RiskScores, recovery_pool
from tfrnet.methods.tfr.steps.constraints import Constraints, held_rows
from tfrnet.methods.tfr.steps.least_move import Bounds, Rows, least_move
from tfrnet.methods.tfr.suppression import lower
from tfrnet.methods.tfr.trial_model import TrialModel

# A step aims this far below its target, so that no extra step is needed for a near miss.
_BEYOND = 0.5
# How much farther the next step may reach after one that was not shortened.
_FARTHER = 1.5
# Steps that are shortened to less than this are worth no more passes.
_LEAST_REACH = 0.1


class SolvedSteps:
    """Moves the mask of one request by solved steps within the guard."""

    def __init__(
        self,
        state: ChannelState,
        scores: RiskScores,
        guard_before: GuardLoss,
        model: TrialModel,
        config: TFRConfig,
        *,
        untouched: torch.Tensor | None = None,
        rivals: Sequence[Encoded] = (),
    ) -> None:
        """Begin at the state's mask; `untouched` and `rivals` are those of `Constraints`."""
        self._state, self._scores, self._model, self._config = state, scores, model, config
        self._kept = Constraints(state, scores, model, config, untouched=untouched, rivals=rivals)
        self._fisher = self._kept.running_fisher(state.fisher)
        self._cost = move_cost(self._fisher, config)
        self._pool = recovery_pool(state, scores, config)
        self.mask, self.attempts, self.reach = state.mask, 0, config.step_margin
        self._guard_before = guard_before
        self.verdict = judge(guard_before, guard_before, config, model.ceiling)

    @property
    def allowed(self) -> int:
        """The maximum number of steps: none if no channel may move."""
        return 0 if self._config.budget == 0 else self._config.steps

    @property
    def least_reach(self) -> float:
        """How short steps may become; whoever asks for short ones gets them."""
        return _LEAST_REACH * min(1.0, self._config.step_margin)

    @property
    def restores(self) -> bool:
        """Whether there is a retain example to bring back."""
        return self._kept.restores

    def take(self, gradients: torch.Tensor, falls: torch.Tensor, restore: bool = False) -> Step:
        """Try a step that lowers the forget examples by `falls`; keep it if the guard accepts it.

        With `restore` it also brings retain examples back to their untouched losses.

        If the guard refuses the first step, its mask and verdict are kept as those of the request.
        """
        config = self._config
        wanted = [*forget_rows(gradients, falls, config), *self._kept.rows(self.mask, restore)]
        step = self._try(wanted)
        if step.verdict.accepted:
            longer = _FARTHER if step.share == 1 else step.share
            self.reach = min(config.step_margin, self.reach * longer)
        if step.verdict.accepted or self.mask is self._state.mask:
            self.mask, self.verdict = step.mask, step.verdict
        return step

    def repair(
        self, forgotten: torch.Tensor, found: ExampleGradients, untouched: torch.Tensor
    ) -> Step:
        """Try a step that only brings retain examples back; keep it if the guard accepts it.

        `forgotten` are gradients of the request's examples, which stay where they are, and
        `untouched` the losses that are asked for.
        """
        step = self._try(
            [
                *held_rows(forgotten, self._config.memory_stiffness),
                *self._kept.rows_to_restore(self.mask, found, untouched),
            ]
        )
        if step.verdict.accepted:
            self.mask, self.verdict = step.mask, step.verdict
            # The guard may have shortened the steps before, but has room again.
            self.reach = self._config.step_margin
        return step

    def _try(self, wanted: list[Rows]) -> Step:
        with self._model.cost.time("solve"):
            move = solved_step(self.mask, wanted, self._cost, self._pool, self._config)
        step = guarded_step(
            self.mask, move, self._guard_before, self.verdict, self._model, self._config
        )
        self.attempts += step.tries
        if step.verdict.accepted:
            self._kept.take_step(step.guard_losses)
        return step

    def hold_what_came_back(self) -> None:
        """From now on hold retain examples where they are, if that is better than at the start."""
        self._kept.hold_what_came_back(self.mask)

    def go_back(self, mask: torch.Tensor, verdict: Verdict) -> None:
        """Return to an earlier mask of the request and the verdict on it."""
        self.mask, self.verdict = mask, verdict

    def begin_again(self) -> None:
        """Go back to where the request began; what was tried still counts."""
        before = self._guard_before
        self.mask, self.reach = self._state.mask, self._config.step_margin
        self.verdict = judge(before, before, self._config, self._model.ceiling)
        self._kept.begin_again()

    def idle_reason(self, low_enough: str) -> str:
        """Return why no step was tried; `low_enough` says where the examples are."""
        if self._config.budget == 0:
            return "nothing to do: the budget is 0"
        return f"nothing to do: every example is {low_enough} already"

    def candidate(
        self, forgotten: torch.Tensor | None = None, note: str = "", shortfall: str = ""
    ) -> Candidate:
        """Return the state with the mask as it is now.

        `forgotten` are the gradients of what the request made the model forget.
        """
        before, room = self._state.mask, self._config.memory_rows
        memory, falls = self._state.forgotten, self._state.forgotten_falls
        if memory is not None and forgotten is not None:
            if falls is None:
                memory = with_rows(memory, forgotten, room)
            else:
                memory, falls = with_falls(memory, falls, forgotten, room)
        return Candidate(
            ChannelState(self.mask, self._scores.trajectory, self._fisher, memory, falls),
            self.verdict,
            (self.mask < before).nonzero().flatten(),
            int(self._pool.sum()),
            int((self.mask > before).sum()),
            self.attempts,
            note,
            shortfall,
        )


@dataclass(frozen=True)
class Step:
    """The last mask that was tried, with the guard's verdict."""

    mask: torch.Tensor
    verdict: Verdict
    guard_losses: torch.Tensor
    share: float
    tries: int


def guarded_step(
    mask: torch.Tensor,
    move: torch.Tensor,
    before: GuardLoss,
    now: Verdict,
    model: TrialModel,
    config: TFRConfig,
) -> Step:
    """Shorten a move until the guard accepts it or the tries are used up.

    `before` is the guard loss before the request, `now` the verdict on the mask as it is.
    """
    share = 1.0
    for tries in range(1, config.backtracks + 2):
        trial = lower(mask, move, share, config.dormant_threshold, config.max_sparsity)
        losses = model.guard_losses(trial)
        tried = judge(before, model.mean_guard_loss(losses), config, model.ceiling)
        if tried.accepted or tries > config.backtracks:
            break
        share *= _shorter(now, tried, config)
        model.report.again(tries + 1, tried.reason)
    return Step(trial, tried, losses, share, tries)


def wanted_falls(margins: torch.Tensor, target: torch.Tensor | float, reach: float) -> torch.Tensor:
    """Return how far each margin should fall in the next step: 0 if it is low enough."""
    falls = (margins - target + _BEYOND).clamp(max=reach)
    return torch.where(margins > target, falls, torch.zeros_like(falls))


def forget_rows(gradients: torch.Tensor, falls: torch.Tensor, config: TFRConfig) -> list[Rows]:
    """Return the rows of the forget examples: to lower, or to hold if already low enough."""
    falling = falls > 0
    asked = Rows(gradients[falling], falls[falling], config.forget_stiffness)
    return [asked, *held_rows(gradients[~falling], config.memory_stiffness)]


def move_cost(fisher: torch.Tensor, config: TFRConfig) -> torch.Tensor:
    """Return the cost of moving each channel: higher if retain answers depend on it."""
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
        # Keeping only the largest entries would fall short, so solve again for these channels.
        largest = (move.abs() * cost.sqrt()).sort(descending=True, stable=True).indices
        move = least_move(wanted, cost, bounds.only(largest[: config.budget]))
    return move


def _shorter(now: Verdict, refused: Verdict, config: TFRConfig) -> float:
    """Return the share of a rejected step to try next, assuming a quadratic rise of the loss."""
    pairs = zip(now.parts, refused.parts, strict=True)
    return min(_share(start.after, part, config) for start, part in pairs if not part.accepted)


def _share(now: float, refused: Verdict, config: TFRConfig) -> float:
    rise, allowed = refused.after - now, refused.limit - now
    if not math.isfinite(rise) or rise <= 0:
        return config.backtrack_factor
    return min(0.8, max(0.05, 0.9 * math.sqrt(max(0.0, allowed) / rise)))
