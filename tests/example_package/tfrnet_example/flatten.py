"""Flatten: where a forgotten answer stood, every token becomes equally likely."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from tfrnet.core.search_space import SearchSpace
from tfrnet.core.settings import option
from tfrnet.training.answers import AnswerUnlearner
from tfrnet.training.loop import Part
from tfrnet.training.training_settings import TrainingSettings


@dataclass(frozen=True)
class FlattenConfig(TrainingSettings):
    """Settings of Flatten. A `tuned` mapping would hold what `tfrnet search` chose."""

    about: ClassVar[str] = "forget answers are trained towards the uniform distribution"

    retain_weight: float = option(1.0, "weight of the retain loss", 0)


class Flatten(AnswerUnlearner):
    """Moves the answers' tokens towards the uniform distribution."""

    method = "flatten"
    label = "Flatten"
    config_class = FlattenConfig
    search_space = SearchSpace(
        {
            "learning_rate": (1e-6, 1e-5, 1e-4),
            "retain_weight": (0.3, 1.0, 3.0),
        }
    )
    mean_over = "tokens"
    config: FlattenConfig

    def _forget_loss(
        self, logits: torch.Tensor, losses: torch.Tensor, part: Part, reference: Any
    ) -> torch.Tensor:
        # The cross-entropy of the model under the uniform distribution.
        return -torch.log_softmax(logits, -1).mean()


METHOD = Flatten
