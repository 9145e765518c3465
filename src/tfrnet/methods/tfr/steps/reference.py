"""Levels from reference examples: how likely answers are that the model never saw.

Beyond the paper. The untouched model is measured on them exactly as on the request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from tfrnet.core.errors import OVERFLOW_HINT, InputError
from tfrnet.data.examples import Encoded
from tfrnet.methods.tfr.scoring import ScoreOptions
from tfrnet.methods.tfr.steps.levels import AnswerOdds, Form, Goal, key_of
from tfrnet.methods.tfr.steps.neighbours import likeness, prompt_states, ranked

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# The most reference examples that one is compared with: those with the most similar prompts.
_COMPARED = 16


@dataclass(frozen=True)
class Reference:
    """Reference examples and the states of their prompts under the untouched model."""

    examples: list[Encoded]
    states: torch.Tensor

    @classmethod
    def of(
        cls, model: PreTrainedModel, examples: list[Encoded], options: ScoreOptions
    ) -> Reference:
        """Run the examples through a model whose mask is all ones."""
        return cls(examples, prompt_states(model, examples, options))

    def levels(
        self,
        model: PreTrainedModel,
        states: torch.Tensor,
        forms: Sequence[Form],
        options: ScoreOptions,
        quantile: float,
    ) -> list[float]:
        """Return the log-odds at which each example of a request counts as unknown.

        `states` are those of its prompts, `forms` those of its answers. `quantile` 0 takes the most
        likely of the nearest reference examples, 0.5 the median one.
        """
        nearest = ranked(likeness(states, self.states))[:, :_COMPARED]
        kinds = [replace(form, rivals=(), named=()) for form in forms]
        odds = {kind: self._odds(model, kind, options) for kind in dict.fromkeys(kinds)}
        return [
            float(odds[kind][places].quantile(1 - quantile))
            for kind, places in zip(kinds, nearest, strict=True)
        ]

    def _odds(self, model: PreTrainedModel, form: Form, options: ScoreOptions) -> torch.Tensor:
        """Return the log-odds of the reference answers: among symbols, if any, or per token."""
        goal = Goal(form, 0.0)
        measure = AnswerOdds({key_of(example): goal for example in self.examples})
        odds = measure.measured(model, self.examples, options)
        if not bool(odds.isfinite().all()):
            raise InputError(
                "the loss on the reference data is not finite, so nothing was changed; "
                f"{OVERFLOW_HINT}"
            )
        return odds
