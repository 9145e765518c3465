"""What a solved step must leave in place, as rows of linear conditions on the move.

If a step changes retain examples more than predicted, the next one corrects that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from tfrnet.data.examples import Encoded
from tfrnet.methods.tfr.config import TFRConfig
from tfrnet.methods.tfr.scoring import ExampleGradients
from tfrnet.methods.tfr.state import ChannelState
from tfrnet.methods.tfr.steps.common import RiskScores
from tfrnet.methods.tfr.steps.fisher import running_fisher
from tfrnet.methods.tfr.steps.least_move import Rows
from tfrnet.methods.tfr.steps.margins import (
    certainty_weights,
    log_odds,
    log_odds_gradients,
)
from tfrnet.methods.tfr.trial_model import TrialModel

# In nats: the same loss from passes of different sizes.
_ROUNDING = 1e-3
# The most log-odds that one step restores: the linear prediction holds no further.
_MOST_GIVEN_BACK = 2.0


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
