"""Trained weights as a method's effect: a state holds the float32 values of some parameters."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import nn

from tfrnet.errors import InputError
from tfrnet.state.tensors import State, TensorState

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class WeightsEffect:
    """Puts a state's values in the place of the model's own, which are kept for the way back.

    Values are swapped, never written over, so that a restore is bit for bit and costs nothing.
    """

    def __init__(self, model: PreTrainedModel, names: Collection[str] | None = None) -> None:
        """Take over the named parameters, or all."""
        if getattr(model, "is_quantized", False):
            raise InputError("the model is quantised, so it cannot be trained; use trained=lora")
        self.model = model
        self.parameters: dict[str, nn.Parameter] = {
            name: parameter
            for name, parameter in model.named_parameters()
            if names is None or name in names
        }
        for name in sorted(set(names or ()) - set(self.parameters)):
            raise InputError(f"{type(model).__name__} has no weight {name} that could be trained")
        for name, parameter in self.parameters.items():
            if parameter.is_meta:
                raise InputError(f"{name} is offloaded, so it cannot be trained; load it whole")
            if not parameter.is_floating_point():
                raise InputError(
                    f"{name} is quantised ({parameter.dtype}), so it cannot be trained; "
                    "use trained=lora"
                )
        # In the host's memory: no second copy of a model takes up room on a GPU.
        self._originals = {name: p.data.cpu() for name, p in self.parameters.items()}

    def show(self, state: State) -> None:
        """Let the model act as in a state."""
        values = state.tensors()
        for name, parameter in self.parameters.items():
            value = values.get(name, self._originals[name])
            parameter.data = value.to(parameter.device, parameter.dtype)

    def layout(self) -> list[list[Any]]:
        """Return the parameters and their sizes."""
        return [[name, parameter.numel()] for name, parameter in self.parameters.items()]

    def folded(self) -> dict[str, torch.Tensor]:
        """Return the weights of an ordinary model that acts like this one."""
        return {}

    def detach(self) -> None:
        """Give the model its own weights back."""
        self.show(TensorState())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.detach()
