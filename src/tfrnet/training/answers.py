"""Methods whose forget loss is a function of the answers' logits."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Literal

import torch

from tfrnet.data.examples import Encoded
from tfrnet.models.forward import answer_logits, token_losses
from tfrnet.training.loop import GradientUnlearner, Part, backward


class AnswerUnlearner(GradientUnlearner):
    """Adds a retain term: forget_weight * L_f + retain_weight * (token mean of the retain loss).

    A method without these settings has weights 1 and 0.
    """

    # What L_f is a mean over; it determines how the parts of a large request are weighted.
    mean_over: ClassVar[Literal["tokens", "sequences"]] = "sequences"

    @abstractmethod
    def _forget_loss(
        self, logits: torch.Tensor, losses: torch.Tensor, part: Part, reference: Any
    ) -> torch.Tensor:
        """Return L_f of a part, given the logits and losses of its answer tokens."""

    def _backward(self, forget: list[Encoded], reference: Any, step: int) -> float:
        tokens = sum(example.answer_length for example in forget)
        total, counted = 0.0, 0
        settings = vars(self.config)
        weight = settings.get("forget_weight", 1.0)
        for part in self._parts(forget):
            logits = answer_logits(self.model, part.batch)
            losses = token_losses(logits, part.batch.targets)
            under = self._under_ceiling(part).to(losses.device)
            total += float(losses.detach()[under].sum())
            counted += int(under.sum())
            counts = (losses.numel(), tokens), (len(part.numbers), len(forget))
            share, of = counts[0] if self.mean_over == "tokens" else counts[1]
            if weight:
                loss = self._forget_loss(logits, losses, part, reference)
                backward(weight * share / of * loss, "the forget loss")
        self._retain_backward(settings.get("retain_weight", 0.0), step)
        return total / max(counted, 1)

    def _under_ceiling(self, part: Part) -> torch.Tensor:
        """Return which answer tokens of a part count in the loss that a ceiling is for. [T]."""
        return torch.ones_like(part.batch.targets, dtype=torch.bool)
