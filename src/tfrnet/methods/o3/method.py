"""O3 (Gao et al., ICLR 2025): an adapter with random answers, active for forgotten prompts only.

Training: L = CE(random target) + lambda * (1 / layers) * sum over modules and earlier requests i of
|A_i A'|^2, on a LoRA that continues from the last request's. No retain data is used.

Inference: a detector gives the adapter one weight per prompt for the whole answer. It is the cheap
variant of the paper, on the model's own hidden states instead of RoBERTa's; the prompts of all
requests share one detector, since a single request has too few for statistics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from tfrnet.core.errors import InputError
from tfrnet.core.search_space import SearchSpace
from tfrnet.core.stage import Report
from tfrnet.core.tensors import TensorState
from tfrnet.data.examples import Encoded, wrong_examples
from tfrnet.data.requests import Request
from tfrnet.methods.o3.config import O3Config
from tfrnet.methods.o3.gated_lora import GatedLoraEffect
from tfrnet.methods.o3.prompt_memory import (
    Memory,
    earlier_factors,
    extended,
    new_prompts,
    snapshot_tensors,
)
from tfrnet.methods.o3.targets import random_targets
from tfrnet.models.layers import decoder_layers
from tfrnet.training.answers import AnswerUnlearner
from tfrnet.training.loop import Part, backward
from tfrnet.unlearner import Proposal

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Before:
    """Factors A of earlier requests by name [k, r, d_in], and the memory with the new prompts."""

    earlier: dict[str, torch.Tensor]
    memory: Memory
    prompts: list[tuple[int, ...]]
    detector_seconds: float


class O3(AnswerUnlearner):
    """Trains an adapter on random answers, which acts only on prompts similar to forgotten ones."""

    method = "o3"
    label = "O3"
    config_class = O3Config
    search_space = SearchSpace(
        {
            "learning_rate": (3e-5, 1e-4, 3e-4, 1e-3, 3e-3),
            "steps": (8, 15, 30, 60),
            "gate": ("tofu", "soft"),
        },
        start=O3Config.tuned,
    )
    exportable = False
    why_not_exportable = "the weight of its adapter depends on the prompt"
    mean_over = "tokens"
    reference_stage = "reading the prompts"
    config: O3Config
    effect: GatedLoraEffect

    @classmethod
    def attach(
        cls, model: PreTrainedModel, config: O3Config, seed: int = 0, batch_size: int = 8
    ) -> GatedLoraEffect:
        """Put a gated adapter on a model."""
        return GatedLoraEffect(model, config.lora(seed), config.detector(), batch_size)

    def _attach(self) -> GatedLoraEffect:
        return self.attach(self.model, self.config, self.seed, self.batch_size)

    def prepare(self, requests: Sequence[Request]) -> list[list[Encoded]]:
        """Return the requests' tokens; each example needs a prompt."""
        for request in requests:
            for number, example in enumerate(request.examples, start=1):
                if not example.prompt.strip():
                    raise InputError(
                        f"request {request.id!r}, example {number} has no prompt, and o3 "
                        "recognises what to forget by its prompt; give prompt and answer"
                    )
                if self.config.use_wrong_answers:
                    # One of them is drawn later, when it would be too late to refuse it.
                    label = f"request {request.id!r}, example {number}, wrong answers"
                    self.encode(wrong_examples(example), label)
        return super().prepare(requests)

    def propose(self, request: Request, report: Report | None = None) -> Proposal[TensorState]:
        """Work out what a request would do, leaving state and model as they are."""
        self._examples = request.examples
        return super().propose(request, report)

    # What is trained on

    def _targets(self, forget: list[Encoded]) -> list[Encoded]:
        config = self.config
        known = self._examples
        if not config.use_wrong_answers:
            known = tuple(replace(example, wrong_answers=()) for example in known)
        examples = random_targets(
            known,
            "o3",
            self.seed,
            self.requests_seen,
            refuse=config.targets == "refusal",
            include_true=config.include_true,
        )
        return super()._targets(self.encode(examples, "random answers"))

    def _reference(self, forget: list[Encoded]) -> Before:
        state = self.state.tensors()
        memory = Memory.from_tensors(state)
        # The original examples, not the targets: a long target may have a cut prompt.
        asked = self.encode(self._examples, "request")
        prompts = [example.ids[: example.answer_start] for example in asked]
        fresh = new_prompts(memory, prompts)
        before = self.effect.detector_seconds
        if memory is None or fresh:
            features = self.effect.features(fresh)
            seen = (self.seed, self.requests_seen)
            memory = extended(memory, fresh, features, self.config.held_out, *seen)
        return Before(earlier_factors(state), memory, prompts, before)

    def _backward(self, forget: list[Encoded], reference: Before, step: int) -> float:
        with self.effect.fully_on():
            loss = super()._backward(forget, reference, step)
        penalty = self._penalty(reference.earlier)
        if penalty is not None:
            backward(self.config.orthogonal_weight * penalty, "the distance to earlier adapters")
        return loss

    def _forget_loss(
        self, logits: torch.Tensor, losses: torch.Tensor, part: Part, reference: Any
    ) -> torch.Tensor:
        return losses.mean()

    def _penalty(self, earlier: dict[str, torch.Tensor]) -> torch.Tensor | None:
        if not earlier or not self.config.orthogonal_weight:
            return None
        parts = [orthogonality(a, self.effect.parameters[name]) for name, a in earlier.items()]
        first = parts[0].device
        return torch.stack([p.to(first) for p in parts]).sum() / len(decoder_layers(self.model))

    # What is kept

    def _carried(self, reference: Before) -> dict[str, torch.Tensor]:
        return snapshot_tensors(reference.earlier) | reference.memory.tensors()

    def _details(self, reference: Before) -> dict[str, Any]:
        """Return the adapter's weights for the request's prompts under the new state."""
        weights = self.effect.weights_of(reference.prompts)
        return {
            "stored_prompts": len(reference.memory.keys),
            "detector_seconds": self.effect.detector_seconds - reference.detector_seconds,
            "forget_weight": sum(weights) / len(weights),
        }


def orthogonality(previous: torch.Tensor, current: torch.Tensor) -> torch.Tensor:
    """Return |A_i A'|^2, summed over the earlier A_i. [k, r, d] or [r, d], and [r, d]."""
    return (previous.to(current) @ current.T).square().sum()


METHOD = O3
