"""ASU, attention smoothing (Zare Zade et al., ICLR 2026): distillation from smoothed attention.

L = forget_weight * KL(teacher || student) on the forget answers' tokens (mean within each sequence,
then over sequences) + retain_weight * NLL_r. The teacher is the reference model with attention
softmax(QK^T / (tau sqrt(d))); its log-probabilities are computed once per request, so there is no
second model in memory. The student's attention is unchanged, so inference costs nothing extra.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from tfrnet.core.search_space import SearchSpace
from tfrnet.data.examples import Encoded
from tfrnet.methods.asu.attention import smoothed_attention
from tfrnet.methods.asu.config import ASUConfig
from tfrnet.models.forward import answer_logits, mean_by_example, token_losses
from tfrnet.training import objectives
from tfrnet.training.answers import AnswerUnlearner
from tfrnet.training.loop import Part


@dataclass(frozen=True)
class Teacher:
    """Log-probabilities of every answer token of each part, and the teacher's mean token loss."""

    log_probs: dict[int, torch.Tensor]
    loss: float


class ASU(AnswerUnlearner):
    """Trains forget answers towards what the model predicts with smoothed attention."""

    method = "asu"
    label = "ASU"
    config_class = ASUConfig
    search_space = SearchSpace(
        {
            "learning_rate": (2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4),
            "steps": (2, 5, 10, 20, 40),
            "forget_weight": (0.03, 0.1, 0.3, 1.0, 3.0),
            "temperature": (1.5, 2.3, 4.0, 8.0, 16.0),
        },
        start=ASUConfig.tuned,
    )
    config: ASUConfig

    def _reference(self, forget: list[Encoded]) -> Teacher:
        config = self.config
        log_probs: dict[int, torch.Tensor] = {}
        losses: list[torch.Tensor] = []
        with (
            self._acting_as(config.reference),
            smoothed_attention(self.model, config.temperature, config.smoothed_layers),
        ):
            for part in self._parts(forget):
                logits = answer_logits(self.model, part.batch)
                log_probs[part.numbers[0]] = torch.log_softmax(logits, -1)
                losses.append(token_losses(logits, part.batch.targets))
        return Teacher(log_probs, float(torch.cat(losses).mean()))

    def _forget_loss(
        self, logits: torch.Tensor, losses: torch.Tensor, part: Part, reference: Teacher
    ) -> torch.Tensor:
        teacher = reference.log_probs[part.numbers[0]]
        return mean_by_example(objectives.divergences(logits, teacher), part.batch).mean()

    def _details(self, reference: Teacher) -> dict[str, Any]:
        return {"teacher_loss": reference.loss}


METHOD = ASU
