"""SimNPO (Fan et al., NeurIPS 2025), in the form of its released TOFU code.

L = forget_weight * mean of -(2/beta) log sigmoid(beta (m - gamma)) + retain_weight * NLL_r, where m
is the mean token loss of a forget answer. No reference model. With TOFU's beta of 4.5 the gradient
on a one-token answer nearly vanishes at m = 1.5 nats; with a smaller beta it does so later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from tfrnet.core.search_space import SearchSpace
from tfrnet.core.settings import option
from tfrnet.models.forward import mean_by_example
from tfrnet.training import objectives
from tfrnet.training.answers import AnswerUnlearner
from tfrnet.training.loop import Part
from tfrnet.training.training_settings import TrainingSettings


@dataclass(frozen=True)
class SimNPOConfig(TrainingSettings):
    """Settings of SimNPO."""

    tuned: ClassVar[Mapping[str, Any]] = {
        "learning_rate": 5e-05,
        "steps": 20,
        "beta": 0.5,
        "forget_weight": 1.0,
    }

    steps: int = option(10, "optimiser steps per request", 1, 10_000)
    weight_decay: float = option(0.01, "decoupled weight decay of AdamW", 0)
    beta: float = option(4.5, "sharpness; the larger, the earlier the gradient vanishes", 1e-6)
    gamma: float = option(0.0, "margin for the mean loss of a forget answer")
    forget_weight: float = option(0.125, "weight of the forget loss", 0)
    retain_weight: float = option(1.0, "weight of the retain loss", 0)


class SimNPO(AnswerUnlearner):
    """Raises the mean loss of forget answers until the objective saturates."""

    method = "simnpo"
    label = "SimNPO"
    about = "SimNPO: a saturating, reference-free preference loss on forget answers"
    config_class = SimNPOConfig
    search_space = SearchSpace(
        (
            {"beta": 4.5, "forget_weight": 0.125},
            {"beta": 0.5, "forget_weight": 1.0},
        )
    )
    config: SimNPOConfig

    def _forget_loss(
        self, logits: torch.Tensor, losses: torch.Tensor, part: Part, reference: Any
    ) -> torch.Tensor:
        means = mean_by_example(losses, part.batch)
        return objectives.simnpo(means, self.config.beta, self.config.gamma)


METHOD = SimNPO
