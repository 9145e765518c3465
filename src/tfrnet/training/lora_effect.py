"""LoRA as a method's effect; a state holds the factors of every projection."""

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
    """PEFT's LoRA on a live model, with float32 factors whatever the model's dtype.

    B starts at 0, so an adapter without a state changes nothing.
    """

    has_mask: ClassVar[bool] = False

    def __init__(self, model: PreTrainedModel, options: LoraOptions) -> None:
        from peft.tuners.tuners_utils import BaseTunerLayer

        if any(isinstance(module, BaseTunerLayer) for module in model.modules()):
            raise InputError("the model already has an adapter; merge it into the weights first")
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
                parameter.requires_grad_(True)  # peft froze everything but the adapter
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
        """Apply a state to the model."""
        values = state.tensors()
        for name, parameter in self.parameters.items():
            value = values.get(name, self._initial[name])
            parameter.data = value.to(parameter.device, torch.float32)

    def layout(self) -> list[list[Any]]:
        """Return the factors and their sizes."""
        return [[name, parameter.numel()] for name, parameter in self.parameters.items()]

    def folded(self) -> dict[str, torch.Tensor]:
        """Return the weights of an equivalent ordinary model."""
        weights = {}
        for name, layer in self.layers.items():
            base = layer.get_base_layer().weight
            change = layer.get_delta_weight(ADAPTER)
            weights[f"{name}.weight"] = (base.float() + change.float()).to(base.dtype)
        return weights

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """Restore the original projections within a `with` block."""
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
        """Remove the adapter."""
        if self.layers:
            take_lora_off(self.model)
            self.layers = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.detach()


def _trainable_layers(model: PreTrainedModel) -> dict[str, Any]:
    """Return the projections that have an adapter, or raise if another module has one."""
    found = lora_layers(model)
    for name, layer in found.items():
        if ADAPTER not in layer.lora_A:
            raise ValueError(f"target_modules names {name}, which is not a linear projection")
        if layer.get_base_layer().weight.is_meta:
            raise ValueError(
                f"{name} is offloaded, so it cannot have an adapter; load the whole model"
            )
    return found


def _initial(name: str, parameter: nn.Parameter, generator: torch.Generator) -> torch.Tensor:
    if name.endswith("lora_B"):
        return torch.zeros(parameter.shape)
    # PEFT's initial values, uniform with this bound, but from our own seed.
    bound = 1 / math.sqrt(parameter.shape[1])
    return (2 * torch.rand(parameter.shape, generator=generator) - 1) * bound
