"""A low-rank adapter as a method's effect: a state holds the factors of every projection."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import nn

from tfrnet.core.errors import InputError
from tfrnet.core.tensors import State, TensorState
from tfrnet.models.lora import (
    ADAPTER,
    MARKS,
    LoraOptions,
    lora_layers,
    put_lora_on,
    put_module,
    take_lora_off,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class LoraEffect:
    """PEFT's LoRA on a live model. Its factors are float32 whatever the model's type is.

    B starts at 0, so that an adapter without a state adds exactly nothing.
    """

    has_mask: ClassVar[bool] = False

    def __init__(self, model: PreTrainedModel, options: LoraOptions) -> None:
        from peft.tuners.tuners_utils import BaseTunerLayer

        if any(isinstance(module, BaseTunerLayer) for module in model.modules()):
            raise InputError("the model carries an adapter already; merge it into its weights")
        self.model = model
        training = [parameter for parameter in model.parameters() if parameter.requires_grad]
        try:
            put_lora_on(model, options)
            self.layers = _trainable_layers(model)
        except (ValueError, re.error) as error:
            take_lora_off(model)
            raise InputError(f"no adapter can be put on this model: {error}") from error
        finally:
            for parameter in training:
                parameter.requires_grad_(True)  # peft has frozen what is not the adapter
        self.parameters: dict[str, nn.Parameter] = {}
        for name, layer in self.layers.items():
            for factor in ("lora_A", "lora_B"):
                self.parameters[f"{name}.{factor}"] = getattr(layer, factor)[ADAPTER].weight
        generator = torch.Generator().manual_seed(options.seed)
        self._initial = {
            name: _initial(name, parameter, generator)
            for name, parameter in self.parameters.items()
        }
        for parameter in self.parameters.values():
            parameter.requires_grad_(False)
        self.show(TensorState())

    def show(self, state: State) -> None:
        """Let the model act as in a state."""
        values = state.tensors()
        for name, parameter in self.parameters.items():
            value = values.get(name, self._initial[name])
            parameter.data = value.to(parameter.device, torch.float32)

    def layout(self) -> list[list[Any]]:
        """Return the factors and their sizes."""
        return [[name, parameter.numel()] for name, parameter in self.parameters.items()]

    def folded(self) -> dict[str, torch.Tensor]:
        """Return the weights of an ordinary model that acts like this one."""
        weights = {}
        for name, layer in self.layers.items():
            base = layer.get_base_layer().weight
            change = layer.get_delta_weight(ADAPTER)
            weights[f"{name}.weight"] = (base.float() + change.float()).to(base.dtype)
        return weights

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """Put the projections in the place of the adapter's wrappers around them, for a while."""
        facts = vars(self.model)
        marks = {name: facts.pop(name) for name in MARKS if name in facts}
        try:
            for name, layer in self.layers.items():
                put_module(self.model, name, layer.get_base_layer())
            yield
        finally:
            for name, layer in self.layers.items():
                put_module(self.model, name, layer)
            facts.update(marks)

    def detach(self) -> None:
        """Take the adapter off: the model has its own modules again."""
        if self.layers:
            take_lora_off(self.model)
            self.layers = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.detach()


def _trainable_layers(model: PreTrainedModel) -> dict[str, Any]:
    """Return the projections that have an adapter; one on anything else would not be trained."""
    found = lora_layers(model)
    for name, layer in found.items():
        if ADAPTER not in layer.lora_A:
            raise ValueError(f"target_modules names {name}, which is no linear projection")
        if layer.get_base_layer().weight.is_meta:
            raise ValueError(f"{name} is offloaded, and so its adapter would be; load it whole")
    return found


def _initial(name: str, parameter: nn.Parameter, generator: torch.Generator) -> torch.Tensor:
    if name.endswith("lora_B"):
        return torch.zeros(parameter.shape)
    # As PEFT starts it, but from a seed of our own: uniform with this bound.
    bound = 1 / math.sqrt(parameter.shape[1])
    return (2 * torch.rand(parameter.shape, generator=generator) - 1) * bound
