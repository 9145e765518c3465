"""NPO, negative preference optimisation (Zhang et al., COLM 2024).

L = forget_weight * mean of -(2/beta) log sigmoid(beta (l - l_ref)) + retain_weight * NLL_r, where l
is the summed token loss of a forget answer and l_ref that of the reference model. The reference is
one number per sequence, taken before training; no second model is kept.
"""

from __future__ import annotations

import torch

from tfrnet.core.search_space import SearchSpace
from tfrnet.data.examples import Encoded
from tfrnet.methods.npo.config import NPOConfig
from tfrnet.models.forward import answer_logits, sum_by_example, token_losses
from tfrnet.training import objectives
from tfrnet.training.answers import AnswerUnlearner
from tfrnet.training.loop import Part


class NPO(AnswerUnlearner):
    """Makes forget answers less likely than under the reference, with a vanishing gradient."""

    method = "npo"
    label = "NPO"
    config_class = NPOConfig
    search_space = SearchSpace(
        {
            "learning_rate": (2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4),
            "steps": (5, 10, 20, 40),
            "beta": (0.03, 0.1, 0.3, 1.0),
        },
        start=NPOConfig.tuned,
    )
    config: NPOConfig

    def _reference(self, forget: list[Encoded]) -> torch.Tensor:
        with self._acting_as(self.config.reference):
            sums = [
                sum_by_example(
                    token_losses(answer_logits(self.model, part.batch), part.batch.targets),
                    part.batch,
                )
                for part in self._parts(forget)
            ]
        return torch.cat(sums)

    def _forget_loss(
        self, logits: torch.Tensor, losses: torch.Tensor, part: Part, reference: torch.Tensor
    ) -> torch.Tensor:
        sums = sum_by_example(losses, part.batch)
        return objectives.npo(sums, reference[part.numbers], self.config.beta)


METHOD = NPO
