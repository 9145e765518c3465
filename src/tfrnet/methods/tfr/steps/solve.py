"""Solved steps until every forget example counts as forgotten, each within the guard.

Beyond the paper. Which lowered channels may be raised again is decided by the paper's pool; how
far every channel moves is the solution of `least_move`. If a step changes retain examples more than
predicted, the next one corrects that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from tfrnet.core.guard import GuardLoss, Verdict, judge
from tfrnet.data.examples import Encoded
from tfrnet.methods.tfr.config import TFRConfig
from tfrnet.methods.tfr.scoring import ExampleGradients, Objective
from tfrnet.methods.tfr.sketch import with_falls, with_rows
from tfrnet.methods.tfr.state import ChannelState
from tfrnet.methods.tfr.steps.common import Candidate, RiskScores, recovery_pool
from tfrnet.methods.tfr.steps.fisher import running_fisher
from tfrnet.methods.tfr.steps.least_move import Bounds, Rows, least_move
from tfrnet.methods.tfr.steps.margins import (
    Rivals,
    answer_tokens,
    certainty_weights,
    label_tokens,
    log_odds,
    log_odds_gradients,
    without_depth,
)
from tfrnet.methods.tfr.suppression import lower
from tfrnet.methods.tfr.trial_model import RequestExamples, TrialModel

# A step aims this far below its target, so that no extra step is needed for a near miss.
_BEYOND = 0.5
# How much farther the next step may reach after one that was not shortened.
_FARTHER = 1.5
_LEAST_SHARE = 0.1
# Steps that are shortened to less than this are worth no more passes.
_LEAST_REACH = 0.1
# In nats: the same loss from passes of different sizes.
_ROUNDING = 1e-3
# The most log-odds that one step restores: the linear prediction holds no further.
_MOST_GIVEN_BACK = 2.0


def solve_update(
    state: ChannelState,
    scores: RiskScores,
    guard_before: GuardLoss,
    model: TrialModel,
    config: TFRConfig,
) -> Candidate:
    """Return the candidate after up to `steps` solved steps, each shortened to pass the guard."""
    steps = SolvedSteps(state, scores, guard_before, model, config)
    margins, deep = ForgetMargins(model.examples, config), False
    for number in range(steps.allowed):
        model.report.begin(number + 1, steps.allowed)
        forget = model.forget_gradients(steps.mask, margins.of(deep))
        # Only what is forgotten is remembered; after the last step that is a prediction.
        forgotten = forget.gradients[(forget.values < 0) | deep]
        if deep or bool((forget.values <= config.forget_margin).all()):
            if not _is_cheap(steps.verdict, config):
                break
            if not deep:
                deep, forget = True, model.forget_gradients(steps.mask, margins.of(deep=True))
        target = config.deep_margin if deep else config.forget_margin
        falls = wanted_falls(forget.values, target, steps.reach)
        if deep:
            falls[margins.without_depth.to(falls.device)] = 0
        if not bool((falls > 0).any()):
            break
        step = steps.take(forget.gradients, falls)
        if step.verdict.accepted:
            forgotten = forget.gradients[(forget.values < step.share * falls) | deep]
        elif not steps.verdict.accepted:
            break
        else:
            steps.reach *= max(step.share, _LEAST_SHARE)
    if not steps.attempts:
        return steps.candidate(note=steps.idle_reason("at forget_margin"))
    return steps.candidate(forgotten)


class ForgetMargins:
    """The objectives of a request: how far its answers are ahead of their rivals."""

    def __init__(self, examples: RequestExamples, config: TFRConfig) -> None:
        """Take rivals from the answers of all retain examples."""
        labels = label_tokens(examples.all_retain) if config.labels else None
        allowed = answer_tokens(examples.all_retain)
        self._rivals = Rivals(allowed, config.deep_rivals, labels or ())
        self.without_depth = without_depth(examples.forget, labels)

    def of(self, deep: bool) -> Objective:
        """Return the margin at an answer's weakest token, or (deep) on average."""
        return self._rivals.mean_margins if deep else self._rivals.weakest_margins


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
        return min(_LEAST_REACH, _LEAST_SHARE * self._config.step_margin)

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


def _is_cheap(verdict: Verdict, config: TFRConfig) -> bool:
    if math.isinf(verdict.limit):
        return True
    return all(
        part.after - part.before <= config.cheap_share * (part.limit - part.before)
        for part in verdict.parts
    )


def _shorter(now: Verdict, refused: Verdict, config: TFRConfig) -> float:
    """Return the share of a rejected step to try next, assuming a quadratic rise of the loss."""
    pairs = zip(now.parts, refused.parts, strict=True)
    return min(_share(start.after, part, config) for start, part in pairs if not part.accepted)


def _share(now: float, refused: Verdict, config: TFRConfig) -> float:
    rise, allowed = refused.after - now, refused.limit - now
    if not math.isfinite(rise) or rise <= 0:
        return config.backtrack_factor
    return min(0.8, max(0.05, 0.9 * math.sqrt(max(0.0, allowed) / rise)))


class Constraints:
    """What a step must leave in place: retain examples, guard examples, and earlier requests.

    With `untouched`, the losses before the first request, retain examples are restored to these;
    `rivals`, other answers to the request's prompts, are held in place too.
    """

    def __init__(
        self,
        state: ChannelState,
        scores: RiskScores,
        model: TrialModel,
        config: TFRConfig,
        *,
        untouched: torch.Tensor | None = None,
        rivals: Sequence[Encoded] = (),
    ) -> None:
        assert scores.retain.examples is not None
        self._model, self._config, self._start = model, config, state.mask
        self._retain = self._constraints(scores.retain.examples, untouched)
        self._guard: RetainConstraints | None = None
        if config.hold_guard and config.use_retain:
            self._guard = self._constraints(model.guard_gradients(state.mask))
            self._guard_losses = self._guard.losses
        self._rivals, self._rival_constraints = list(rivals), None
        if self._rivals:
            found = model.rival_gradients(state.mask, self._rivals)
            self._rival_constraints = self._constraints(found)
        self._earlier = state.forgotten if config.use_history else None
        self._falls = state.forgotten_falls

    def running_fisher(self, before: torch.Tensor | None) -> torch.Tensor:
        """Return the retain Fisher, averaged over requests."""
        assert before is not None
        return running_fisher(before, self._retain.mean_square(), self._config.fisher_decay)

    @property
    def restores(self) -> bool:
        """Whether restoring asks for anything: not before earlier requests cost something."""
        return self._config.use_retain and self._retain.restores

    def take_step(self, guard_losses: torch.Tensor) -> None:
        """Record the guard losses after an accepted step."""
        self._guard_losses = guard_losses

    def begin_again(self) -> None:
        """Take the guard losses to be those at the start of the request."""
        if self._guard is not None:
            self._guard_losses = self._guard.losses

    def hold_what_came_back(self, mask: torch.Tensor) -> None:
        """From now on hold retain examples where this mask has them, if that is better."""
        if self._config.use_retain:
            self._retain.hold_if_better(self._model.retain_losses(mask))

    def rows(self, mask: torch.Tensor, restore: bool = False) -> list[Rows]:
        """Return the rows of all constraints under the current mask.

        With `restore`, retain examples are asked back to their untouched losses.
        """
        wanted = []
        moved = mask is not self._start
        if self._config.use_retain:
            losses = self._model.retain_losses(mask) if moved else self._retain.losses
            wanted.append(self._retain.each(losses, restore))
        if self._guard is not None:
            wanted += [
                self._guard.each(self._guard_losses),
                self._guard.together(self._guard_losses),
            ]
        if (rivals := self._rival_constraints) is not None:
            losses = self._model.rival_losses(mask, self._rivals) if moved else rivals.losses
            wanted.append(rivals.each(losses))
        return [*wanted, *self._earlier_rows(mask)]

    def rows_to_restore(
        self, mask: torch.Tensor, found: ExampleGradients, untouched: torch.Tensor
    ) -> list[Rows]:
        """Return rows that ask examples back to untouched losses, and hold earlier requests."""
        asked = self._constraints(found, untouched)
        return [asked.each(found.values, restore=True), *self._earlier_rows(mask)]

    def _earlier_rows(self, mask: torch.Tensor) -> list[Rows]:
        if self._earlier is None:
            return []
        used = self._earlier.any(1)
        held = held_rows(self._earlier[used].to(mask), self._config.memory_stiffness)
        if self._falls is None or mask is not self._start:
            return held
        # Once in a request: in its first step.
        falls = self._config.memory_fall * self._falls[used].to(mask)
        return [replace(rows, falls=falls) for rows in held]

    def _constraints(
        self, found: ExampleGradients, untouched: torch.Tensor | None = None
    ) -> RetainConstraints:
        config = self._config
        return RetainConstraints(found, config.retain_sharpness, config.retain_stiffness, untouched)


class RetainConstraints:
    """Rows that hold examples in place, linearised at the start of the request.

    If a step changes them more than predicted, the next one restores them to where they were when
    the request began, not to the untouched model, which would also restore what was forgotten. With
    enough memory of earlier requests they may be restored to their `untouched` losses after all, a
    little in each step.
    """

    def __init__(
        self,
        found: ExampleGradients,
        sharpness: float,
        stiffness: float,
        untouched: torch.Tensor | None = None,
    ) -> None:
        """Take gradients and losses of the examples; `stiffness` is divided among them."""
        self.losses = self._untouched = found.values
        if untouched is not None:
            self._untouched = torch.minimum(found.values, untouched.to(found.values))
        self._weights = certainty_weights(found.values, sharpness)
        weights = self._weights.to(found.gradients).unsqueeze(1)
        self._rows = log_odds_gradients(found.gradients, found.values).mul_(weights)
        self._sum = found.gradients.sum(0, keepdim=True)
        self._stiffness = stiffness

    @property
    def restores(self) -> bool:
        """Whether an example had a lower untouched loss, beyond rounding."""
        return bool((self.losses - self._untouched > _ROUNDING).any())

    def hold_if_better(self, losses: torch.Tensor) -> None:
        """Ask for these losses where they are lower than those asked for until now."""
        self.losses = torch.minimum(self.losses, losses.to(self.losses))

    def mean_square(self) -> torch.Tensor:
        """Return the mean square of the rows: the diagonal of the Fisher matrix."""
        norms: torch.Tensor = torch.linalg.vector_norm(self._rows, dim=0)
        return norms.square() / len(self._rows)

    def each(self, losses: torch.Tensor, restore: bool = False) -> Rows:
        """Return one row per example, given its current loss; `restore` asks for the untouched."""
        asked = self._untouched if restore else self.losses
        lost = log_odds(asked) - log_odds(losses.to(self.losses))
        if restore:
            lost = lost.clamp(max=_MOST_GIVEN_BACK)
        lost = self._weights * lost
        return Rows(self._rows, -lost.to(self._rows), self._stiffness / len(self._rows))

    def together(self, losses: torch.Tensor) -> Rows:
        """Return one row for the sum of the losses."""
        risen = (losses.to(self.losses) - self.losses).sum().reshape(1)
        return Rows(self._sum, risen.to(self._sum), self._stiffness)


def held_rows(rows: torch.Tensor, stiffness: float) -> list[Rows]:
    """Return rows to hold in place, or nothing if there are none."""
    return [Rows(rows, rows.new_zeros(len(rows)), stiffness)] if len(rows) else []
