"""Gradient ascent on the forget answers up to a ceiling, for GA and GradDiff."""

from __future__ import annotations

from typing import Any

import torch

from tfrnet.training import objectives
from tfrnet.training.answers import AnswerUnlearner
from tfrnet.training.loop import Part
from tfrnet.training.training_settings import AscentSettings


class AscentUnlearner(AnswerUnlearner):
    """Raises the loss of the forget answers.

    The loss has no lower bound, so training stops early once the forget loss is above a ceiling.
    """

    mean_over = "tokens"
    config: AscentSettings

    def _ceiling(self) -> float:
        return self.config.forget_ceiling

    def _forget_loss(
        self, logits: torch.Tensor, losses: torch.Tensor, part: Part, reference: Any
    ) -> torch.Tensor:
        return objectives.gradient_ascent(losses)
