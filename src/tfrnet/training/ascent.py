"""Gradient ascent on the forget answers, for GA and GradDiff."""

from __future__ import annotations

import math
from typing import Any

import torch

from tfrnet.training import objectives
from tfrnet.training.answers import AnswerUnlearner
from tfrnet.training.loop import Part
from tfrnet.training.training_settings import AscentSettings


class AscentUnlearner(AnswerUnlearner):
    """Raises the loss of the forget answers.

    The loss has no lower bound; with a ceiling, training stops early once it is above.
    """

    mean_over = "tokens"
    config: AscentSettings

    def _ceiling(self) -> float:
        ceiling = self.config.forget_ceiling
        return math.inf if ceiling is None else ceiling

    def _under_ceiling(self, part: Part) -> torch.Tensor:
        end = self.tokenizer.eos_token_id
        if self.config.ceiling_counts_end or end is None:
            return super()._under_ceiling(part)
        return part.batch.targets.ne(int(end))

    def _forget_loss(
        self, logits: torch.Tensor, losses: torch.Tensor, part: Part, reference: Any
    ) -> torch.Tensor:
        return objectives.gradient_ascent(losses)
