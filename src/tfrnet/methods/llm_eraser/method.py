"""LLM-Eraser (Zhang et al., KDD 2025), in the form of its released code, on a stream.

A request prunes the MLP channels of the lowest I_retain - 0.2 * I_forget, where I(j) is the sum of
|w * dL/dw| over channel j's weights, and then trains an adapter: L = NLL_r - 0.01 * NLL_f (token
means). Pruned channels are masked, not removed, so a state is a mask and an adapter, which later
requests continue. As in the original, channels are scored on all tokens and ranked within their
layer. The original prunes a share of each layer once; here each request prunes a fixed number of
channels, an equal part of each layer, up to a cap.

Attention heads are not pruned: a head has so many weights that its sum is not comparable with a
channel's. The trainable soft masks of the paper's abstract are not in its released code, nor here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from tfrnet.core.errors import InputError
from tfrnet.core.search_space import SearchSpace
from tfrnet.core.tensors import TensorState
from tfrnet.data.examples import Encoded
from tfrnet.methods.llm_eraser import scores as scoring
from tfrnet.methods.llm_eraser.config import LLMEraserConfig
from tfrnet.methods.llm_eraser.importance import gathered_importance, refuse_unscored
from tfrnet.methods.llm_eraser.pruning import MASK, PrunedEffect
from tfrnet.models.checkpointing import checkpointed
from tfrnet.training import objectives
from tfrnet.training.answers import AnswerUnlearner
from tfrnet.training.loop import DivergedError, Part

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Pruning:
    """The mask after a request and how many channels it prunes, or why it could not be computed."""

    mask: torch.Tensor
    count: int
    problem: str = ""


class LLMEraser(AnswerUnlearner):
    """Prunes the channels that serve the forget data most, then trains an adapter as a repair."""

    method = "llm-eraser"
    label = "LLM-Eraser"
    config_class = LLMEraserConfig
    search_space = SearchSpace(
        {
            "learning_rate": (2e-5, 1e-4, 5e-4, 2.5e-3),
            "steps": (10, 20, 40),
            "forget_weight": (0.003, 0.01, 0.03, 0.1, 0.3, 1.0),
            "score_weight": (0.05, 0.2, 0.8, 3.0),
        },
        start=LLMEraserConfig.tuned,
    )
    mean_over = "tokens"
    reference_stage = "choosing the channels to prune"
    config: LLMEraserConfig
    effect: PrunedEffect

    @classmethod
    def attach(cls, model: PreTrainedModel, config: LLMEraserConfig, seed: int = 0) -> PrunedEffect:
        """Put an adapter on a model, and zero the channels that a state prunes."""
        return PrunedEffect(model, config.lora(seed))

    def _attach(self) -> PrunedEffect:
        effect = self.attach(self.model, self.config, self.seed)
        try:
            refuse_unscored(effect, self._layers(effect))
        except InputError:
            effect.detach()
            raise
        return effect

    def _layers(self, effect: PrunedEffect) -> tuple[int, ...]:
        return self.config.layers or scoring.middle_layers(len(effect.mlps))

    # Pruning

    def _reference(self, forget: list[Encoded]) -> Pruning:
        """Choose the channels and prune them on the model."""
        old = self.effect.mask_of(self.state)
        try:
            chosen = self._choose(old, forget)
        except DivergedError as error:
            return Pruning(old, 0, str(error))
        mask = old.index_fill(0, chosen, 0)
        self.effect.show(TensorState(self.state.tensors() | {MASK: mask}))
        return Pruning(mask, len(chosen))

    def _choose(self, mask: torch.Tensor, forget: list[Encoded]) -> torch.Tensor:
        config = self.config
        pruned = int((mask == 0).sum())
        count = scoring.allowance(mask.numel(), pruned, config.budget, config.max_pruned)
        if not count:
            return torch.empty(0, dtype=torch.long)
        layers = self._layers(self.effect)
        # A pruned channel has a score of 0, low enough to be chosen again.
        candidates = torch.zeros(mask.numel(), dtype=torch.bool)
        for number, (part, kept) in enumerate(
            zip(self.effect.split(candidates), self.effect.split(mask), strict=True)
        ):
            part.copy_((kept == 1) & (number in layers))
        sample = self._retain_sample(config.score_examples, "score")
        retain = self._importance([self._ended(example) for example in sample], "retain")
        scores = scoring.selective_scores(
            retain, self._importance(forget, "forget"), config.score_weight
        )
        if config.ranking == "global":
            return scoring.lowest(scores, candidates, count)
        return scoring.lowest_by_layer(self.effect.split(scores), candidates, count)

    def _importance(self, examples: list[Encoded], what: str) -> torch.Tensor:
        if self.config.score_tokens == "all":
            examples = [replace(example, answer_start=1) for example in examples]
        passes = -(-len(examples) // self.batch_size)
        with (
            checkpointed(self.model, self.gradient_checkpointing),
            gathered_importance(self.effect, self._layers(self.effect), passes) as importance,
        ):
            self._mean_backward(examples, 1.0, f"the {what} loss")
        if not bool(torch.isfinite(importance).all()):
            raise DivergedError(f"the {what} importance of the channels is not finite")
        return importance

    # Training

    def _backward(self, forget: list[Encoded], reference: Pruning, step: int) -> float:
        if reference.problem:
            raise DivergedError(reference.problem)
        return super()._backward(forget, reference, step)

    def _forget_loss(
        self, logits: torch.Tensor, losses: torch.Tensor, part: Part, reference: Any
    ) -> torch.Tensor:
        return objectives.gradient_ascent(losses)

    def _carried(self, reference: Pruning) -> dict[str, torch.Tensor]:
        return {MASK: reference.mask}

    def _details(self, reference: Pruning) -> dict[str, Any]:
        config, total = self.config, reference.mask.numel()
        pruned = int((reference.mask == 0).sum())
        details: dict[str, Any] = {"pruned_now": reference.count, "pruned_in_all": pruned}
        if reference.count < config.budget and not reference.problem:
            cap = scoring.allowance(total, 0, total, config.max_pruned)
            why = f"max_pruned allows {cap} of {total} channels in all"
            if pruned < cap:
                why = "the layers that are pruned have no more channels"
            details["limited"] = f"{reference.count} of {config.budget} were pruned: {why}"
        return details


METHOD = LLMEraser
