"""RMU, representation misdirection (Li et al., ICML 2024), with the adaptive coefficient.

L = mse(h_f, c u) + alpha * mse(h_r, h_r of the frozen model), h the output of one layer at every
position that is not padding. u is one random direction for the whole stream. c is `scale` times the
mean length of h_f, measured once before the first update (adaptive RMU, Dang et al., AAAI 2025), or
fixed. The first token is left out of that mean: it is an attention sink with a state several times
as long as any other, which matters in a short prompt. Only three projections are trained. The
frozen model is the one before the first request; its retain states are computed once per request.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from tfrnet.core.errors import InputError
from tfrnet.core.search_space import SearchSpace
from tfrnet.data.examples import Encoded
from tfrnet.methods.rmu.config import RMUConfig
from tfrnet.models.forward import collate, input_device
from tfrnet.models.layers import decoder_layers, hidden_after, hidden_after_each
from tfrnet.models.padding import without_first
from tfrnet.training import objectives
from tfrnet.training.loop import GradientUnlearner, Trainable, backward
from tfrnet.training.lora_effect import LoraEffect
from tfrnet.training.weights_effect import WeightsEffect

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_COEFFICIENT = "rmu.coefficient"


@dataclass(frozen=True)
class Anchors:
    """The target of the forget states, and the original retain states for every step."""

    target: torch.Tensor
    coefficient: float
    retain: list[torch.Tensor]


class RMU(GradientUnlearner):
    """Steers hidden states of forget examples to a random direction and keeps retain states."""

    method = "rmu"
    label = "RMU"
    config_class = RMUConfig
    search_space = SearchSpace(
        {
            "learning_rate": (1e-5, 5e-5, 2.5e-4, 1e-3, 5e-3, 2.5e-2),
            "steps": (4, 8, 16, 32),
            "retain_weight": (0.1, 1.0, 10.0, 100.0, 1200.0, 12000.0),
        },
        start=RMUConfig.tuned,
    )
    adam_eps = 1e-6
    config: RMUConfig

    @classmethod
    def attach(cls, model: PreTrainedModel, config: RMUConfig, seed: int = 0) -> Trainable:
        """Attach to the trained projections, or add adapters to them."""
        names = _trained_modules(model, config)
        if config.trained == "lora":
            return LoraEffect(model, replace(config.lora(seed), target_modules=tuple(names)))
        return WeightsEffect(model, {f"{name}.weight" for name in names})

    def _reference(self, forget: list[Encoded]) -> Anchors:
        frozen: list[torch.Tensor] = []
        with self._acting_as("start"):
            if self.config.retain_weight:
                for step in range(self.config.steps):
                    frozen.append(self._states(self._retain_sample(self._count(), "step", step)))
        with torch.no_grad():
            coefficient = self._coefficient(forget)
        size = self.model.config.get_text_config().hidden_size
        direction = objectives.control_direction(size, self.seed)
        return Anchors(direction * coefficient, coefficient, frozen)

    def _coefficient(self, forget: list[Encoded]) -> float:
        known = self.state.tensors().get(_COEFFICIENT)
        if known is not None:
            return float(known)
        if self.config.coefficient:
            return self.config.coefficient
        batch = collate(forget[: self.config.forget_batch], input_device(self.model))
        mask = batch.attention_mask
        (states,) = hidden_after_each(self.model, [self._layer()], batch.input_ids, mask)
        counted = without_first(mask) if self.config.scale_skips_first else mask
        lengths = states[counted.to(states.device).bool()].float().norm(dim=-1)
        return self.config.scale * float(lengths.mean())

    def _carried(self, reference: Anchors) -> dict[str, torch.Tensor]:
        return {_COEFFICIENT: torch.tensor([reference.coefficient])}

    def _backward(self, forget: list[Encoded], reference: Anchors, step: int) -> float:
        count = self.config.forget_batch
        start = step * count
        chosen = [forget[(start + i) % len(forget)] for i in range(min(count, len(forget)))]
        states = self._states(chosen)
        target = reference.target.to(states.device)
        backward(objectives.to_control(states, target), "the forget loss")
        if self.config.retain_weight:
            kept = self._states(self._retain_sample(self._count(), "step", step))
            loss = objectives.to_frozen(kept, reference.retain[step])
            backward(self.config.retain_weight * loss, "the retain loss")
        return 0.0

    def _details(self, reference: Anchors) -> dict[str, Any]:
        return {"coefficient": reference.coefficient}

    def _count(self) -> int:
        return self.config.retain_batch

    def _states(self, examples: list[Encoded]) -> torch.Tensor:
        batch = collate(examples, input_device(self.model))
        return hidden_after(self.model, self._layer(), batch)

    def _layer(self) -> nn.Module:
        return decoder_layers(self.model)[self.config.layer]


def _trained_modules(model: PreTrainedModel, config: RMUConfig) -> list[str]:
    layers = decoder_layers(model)
    if config.layer >= len(layers):
        raise InputError(
            f"RMU steers layer {config.layer}, but {type(model).__name__} has layers 0 to "
            f"{len(layers) - 1}; set layer to one of them"
        )
    wanted = config.trained_layers
    if wanted is None:
        wanted = tuple(range(max(0, config.layer - 2), config.layer + 1))
    if not wanted:
        raise InputError(
            "trained_layers is empty, so RMU has nothing to train; name at least one layer"
        )
    names = {module: name for name, module in model.named_modules()}
    found = []
    for number in wanted:
        if number > config.layer:
            raise InputError(
                f"trained_layers names layer {number}, which comes after the steered layer "
                f"{config.layer}"
            )
        inside = dict(layers[number].named_modules())
        if config.trained_module not in inside:
            known = [name for name, module in inside.items() if hasattr(module, "weight")]
            raise InputError(
                f"RMU trains {config.trained_module}, but layer {number} of "
                f"{type(model).__name__} has only {', '.join(known)}; set trained_module"
            )
        found.append(names[inside[config.trained_module]])
    return found


METHOD = RMU
