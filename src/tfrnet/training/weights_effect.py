"""Trained weights as a method's effect; a state holds float32 values of some parameters."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import nn

from tfrnet.core.errors import InputError
from tfrnet.core.tensors import State, TensorState

if TYPE_CHECKING:
    from transformers import PreTrainedModel


# The model's own values, the last state's, the next one's, and as much again for training.
_COPIES = 8


def has_room_for_copies(parameters: Iterable[nn.Parameter]) -> bool:
    """Return whether unused values can stay on the GPUs, which saves moving them.

    Otherwise they are kept in host memory. Copies are float32 or wider.
    """
    sizes: dict[torch.device, int] = {}
    for parameter in parameters:
        size = parameter.numel() * max(4, parameter.itemsize)
        sizes[parameter.device] = sizes.get(parameter.device, 0) + size
    return all(
        device.type == "cuda" and torch.cuda.mem_get_info(device)[0] > _COPIES * size
        for device, size in sizes.items()
    )


class WeightsEffect:
    """Swaps a state's values for the model's own, which are kept.

    Values are swapped, not overwritten, so restoring is exact and free.
    """

    has_mask: ClassVar[bool] = False

    def __init__(self, model: PreTrainedModel, names: Collection[str] | None = None) -> None:
        """Attach to the named parameters, or to all."""
        if getattr(model, "is_quantized", False):
            raise InputError("the model is quantised, so it cannot be trained; use trained=lora")
        self.model = model
        self.parameters: dict[str, nn.Parameter] = {
            name: parameter
            for name, parameter in model.named_parameters()
            if names is None or name in names
        }
        for name in sorted(set(names or ()) - set(self.parameters)):
            raise InputError(f"{type(model).__name__} has no weight {name} to train")
        for name, parameter in self.parameters.items():
            if parameter.is_meta:
                raise InputError(
                    f"{name} is offloaded, so it cannot be trained; load the whole model"
                )
            if not parameter.is_floating_point():
                raise InputError(
                    f"{name} is quantised ({parameter.dtype}), so it cannot be trained; "
                    "use trained=lora"
                )
        self.stays_on_gpu = has_room_for_copies(self.parameters.values())
        self._originals = {
            name: p.data if self.stays_on_gpu else p.data.cpu()
            for name, p in self.parameters.items()
        }

    def show(self, state: State) -> None:
        """Apply a state to the model."""
        values = state.tensors()
        for name, parameter in self.parameters.items():
            value = values.get(name, self._originals[name])
            parameter.data = value.to(parameter.device, parameter.dtype)

    def layout(self) -> list[list[Any]]:
        """Return the parameters and their sizes."""
        return [[name, parameter.numel()] for name, parameter in self.parameters.items()]

    def folded(self) -> dict[str, torch.Tensor]:
        """Return nothing: the model's own weights are the trained ones."""
        return {}

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """Restore the original weights within a `with` block."""
        trained = [(parameter, parameter.data) for parameter in self.parameters.values()]
        try:
            self.detach()
            yield
        finally:
            for parameter, values in trained:
                parameter.data = values

    def detach(self) -> None:
        """Restore the original weights."""
        self.show(TensorState())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.detach()
