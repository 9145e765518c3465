"""SimNPO (Fan et al., NeurIPS 2025), in the form of its released TOFU code.

L = forget_weight * mean of -(2/beta) log sigmoid(beta (m - gamma)) + retain_weight * NLL_r, where m
is the mean token loss of a forget answer. No reference model. With TOFU's beta of 4.5 the gradient
on a one-token answer nearly vanishes at m = 1.5 nats; with a smaller beta it does so later.
"""

from __future__ import annotations

from typing import Any

import torch

from tfrnet.core.search_space import SearchSpace
from tfrnet.methods.simnpo.config import SimNPOConfig
from tfrnet.models.forward import mean_by_example
from tfrnet.training import objectives
from tfrnet.training.answers import AnswerUnlearner
from tfrnet.training.loop import Part


class SimNPO(AnswerUnlearner):
    """Raises the mean loss of forget answers until the objective saturates."""

    method = "simnpo"
    label = "SimNPO"
    config_class = SimNPOConfig
    search_space = SearchSpace(
        {
            "learning_rate": (2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4),
            "steps": (5, 10, 20, 40),
            "beta": (0.1, 0.5, 1.5, 4.5, 13.5),
            "forget_weight": (0.04, 0.125, 0.4, 1.0, 3.0),
        },
        start=SimNPOConfig.tuned,
    )
    config: SimNPOConfig

    def _forget_loss(
        self, logits: torch.Tensor, losses: torch.Tensor, part: Part, reference: Any
    ) -> torch.Tensor:
        means = mean_by_example(losses, part.batch)
        return objectives.simnpo(means, self.config.beta, self.config.gamma)


METHOD = SimNPO
