"""O3 (Gao et al., ICLR 2025): an adapter with random answers, active for forgotten prompts only.

Training: L = CE(random target) + lambda * (1 / layers) * sum over modules and earlier requests i of
|A_i A'|^2, on a LoRA that continues from the last request's. No retain data is used.

Inference: a detector gives the adapter one weight per prompt for the whole answer. It is the cheap
variant of the paper, on the model's own hidden states instead of RoBERTa's; the prompts of all
requests share one detector, since a single request has too few for statistics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch

from tfrnet.core.errors import InputError
from tfrnet.core.search_space import SearchSpace
from tfrnet.core.settings import option
from tfrnet.core.tensors import TensorState
from tfrnet.data.examples import Encoded
from tfrnet.data.requests import Request
from tfrnet.methods.o3.detector import DetectorSettings
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
from tfrnet.training.training_settings import TrainingSettings
from tfrnet.unlearner import Proposal, Report

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class O3Config(TrainingSettings):
    """Settings of O3."""

    tuned: ClassVar[Mapping[str, Any]] = {"learning_rate": 0.0003, "steps": 15, "gate": "tofu"}

    trained: Literal["full", "lora"] = option(
        "lora", "lora: a low-rank adapter (PEFT), which O3 requires"
    )
    learning_rate: float = option(3e-4, "step size of AdamW", 0)
    lora_factor: float = option(1.0, "lora: factor on the learning rate", 0)
    steps: int = option(15, "optimiser steps per request", 1, 10_000)
    orthogonal_weight: float = option(0.1, "lambda, weight of the overlap with earlier adapters", 0)
    targets: Literal["auto", "refusal"] = option(
        "auto", "answers to train: a random one of the same kind, or always a refusal"
    )
    include_true: bool = option(
        False, "a random answer may be the true one, as in the original code"
    )
    gate: Literal["tofu", "soft", "always"] = option(
        "tofu", "adapter's weight: the original steps for TOFU, the soft weight, or always 1"
    )
    zeta: float = option(10.0, "steepness of the weight", 0)
    nu: float = option(0.1, "largest share of outliers of the one-class SVM", 1e-3, 1)
    shrinkage: float = option(0.1, "share of the identity in the covariance", 1e-6, 1)
    held_out: float = option(
        0.2, "share of prompts held out to measure the spread of distances", 0, 1
    )
    skip_first: bool = option(
        True, "detector: skip the first token, whose hidden state is huge in many models"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.trained != "lora":
            raise InputError(
                "o3 needs an adapter that is off for most prompts, so it cannot train the weights "
                "themselves; leave trained at lora"
            )

    def detector(self) -> DetectorSettings:
        """Return the settings of the detector."""
        return DetectorSettings(self.gate, self.zeta, self.nu, self.shrinkage, self.skip_first)


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
    about = "O3: an adapter with random answers, switched on by a detector of forget prompts"
    config_class = O3Config
    search_space = SearchSpace(({"gate": "tofu"}, {"gate": "soft"}))
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
                        f"request {request.id!r}, example {number} has no prompt, by which o3 "
                        "recognises forgotten data"
                    )
        return super().prepare(requests)

    def propose(self, request: Request, report: Report | None = None) -> Proposal[TensorState]:
        """Work out what a request would do, leaving state and model as they are."""
        self._examples = request.examples
        return super().propose(request, report)

    # What is trained on

    def _targets(self, forget: list[Encoded]) -> list[Encoded]:
        config = self.config
        examples = random_targets(
            self._examples,
            "o3",
            self.seed,
            self.requests_seen,
            refuse=config.targets == "refusal",
            include_true=config.include_true,
        )
        return super()._targets(self._encode(examples, "random answers"))

    def _reference(self, forget: list[Encoded]) -> Before:
        state = self.state.tensors()
        memory = Memory.from_tensors(state)
        # The original examples, not the targets: a long target may have a cut prompt.
        asked = self._encode(self._examples, "request")
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
