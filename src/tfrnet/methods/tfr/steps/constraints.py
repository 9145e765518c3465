"""What a solved step is to leave in place, and what of it has been lost on the way."""

from __future__ import annotations

import torch

from tfrnet.methods.tfr.config import TFRConfig
from tfrnet.methods.tfr.probe import Probe
from tfrnet.methods.tfr.scoring import ExampleGradients
from tfrnet.methods.tfr.state import ChannelState
from tfrnet.methods.tfr.steps.fisher import running_fisher
from tfrnet.methods.tfr.steps.least_move import Rows
from tfrnet.methods.tfr.steps.odds import certainty_weights, log_odds, log_odds_gradients
from tfrnet.methods.tfr.update import Evidence


class Kept:
    """All that a step is to leave in place: retain and guard examples, and what was forgotten."""

    def __init__(
        self, state: ChannelState, evidence: Evidence, probe: Probe, config: TFRConfig
    ) -> None:
        assert evidence.retain.examples is not None
        self._probe, self._config, self._start = probe, config, state.mask
        self._retain = self._watched(evidence.retain.examples)
        self._guard: Watched | None = None
        if config.hold_guard and config.use_retain:
            self._guard = self._watched(probe.guard_gradients(state.mask))
            self._guard_losses = self._guard.losses
        self._earlier = state.forgotten if config.use_history else None

    def running_fisher(self, before: torch.Tensor | None) -> torch.Tensor:
        """Return the retain Fisher, averaged over requests."""
        assert before is not None
        return running_fisher(before, self._retain.mean_square(), self._config.fisher_decay)

    def take_step(self, guard_losses: torch.Tensor) -> None:
        """Hear of an accepted step: the losses of the guard examples after it."""
        self._guard_losses = guard_losses

    def rows(self, mask: torch.Tensor) -> list[Rows]:
        """Return what is asked of all of them under the mask as it is now."""
        wanted = []
        if self._config.use_retain:
            moved = mask is not self._start
            losses = self._probe.retain_losses(mask) if moved else self._retain.losses
            wanted.append(self._retain.each(losses))
        if self._guard is not None:
            wanted += [
                self._guard.each(self._guard_losses),
                self._guard.together(self._guard_losses),
            ]
        if self._earlier is not None:
            rows = self._earlier[self._earlier.any(1)]
            wanted += held_rows(rows.to(mask), self._config.memory_stiffness)
        return wanted

    def _watched(self, found: ExampleGradients) -> Watched:
        return Watched(found, self._config.retain_sharpness, self._config.retain_stiffness)


class Watched:
    """Rows of examples under the mask that a request begins with.

    What a step takes from them beyond what the rows foresee, the next one is asked to give back:
    to where they were when the request began, not to the untouched model, since that would bring
    what was forgotten back too.
    """

    def __init__(self, found: ExampleGradients, sharpness: float, stiffness: float) -> None:
        """Take gradients and losses of the examples; `stiffness` is shared out among them."""
        self.losses = found.values
        self._weights = certainty_weights(found.values, sharpness)
        weights = self._weights.to(found.gradients).unsqueeze(1)
        self._rows = log_odds_gradients(found.gradients, found.values).mul_(weights)
        self._sum = found.gradients.sum(0, keepdim=True)
        self._stiffness = stiffness

    def mean_square(self) -> torch.Tensor:
        """Return the mean over rows of their squares: the Fisher's diagonal."""
        norms: torch.Tensor = torch.linalg.vector_norm(self._rows, dim=0)
        return norms.square() / len(self._rows)

    def each(self, losses: torch.Tensor) -> Rows:
        """Return what is asked of every example, given its loss now."""
        lost = self._weights * (log_odds(self.losses) - log_odds(losses.to(self.losses)))
        return Rows(self._rows, -lost.to(self._rows), self._stiffness / len(self._rows))

    def together(self, losses: torch.Tensor) -> Rows:
        """Return what is asked of the sum of their losses."""
        risen = (losses.to(self.losses) - self.losses).sum().reshape(1)
        return Rows(self._sum, risen.to(self._sum), self._stiffness)


def held_rows(rows: torch.Tensor, stiffness: float) -> list[Rows]:
    """Return rows that are to stay in place, or nothing where there are none."""
    return [Rows(rows, rows.new_zeros(len(rows)), stiffness)] if len(rows) else []
