"""Temporary weights: those of an export, or those that an attack makes from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from tfrnet.core.effect import Effect
from tfrnet.core.errors import InputError


@contextmanager
def replaced(model: nn.Module, tensors: Mapping[str, torch.Tensor]) -> Iterator[None]:
    """Give the named parameters other values within a `with` block.

    The original tensors are set aside and put back afterwards, so nothing is copied or rounded.
    """
    parameters = [model.get_parameter(name) for name in tensors]
    originals = [parameter.data for parameter in parameters]
    try:
        for parameter, tensor in zip(parameters, tensors.values(), strict=True):
            parameter.data = tensor
        yield
    finally:
        for parameter, original in zip(parameters, originals, strict=True):
            parameter.data = original


@contextmanager
def folded(effect: Effect) -> Iterator[None]:
    """Give the model the weights of an export, without the live effect, within a `with` block.

    Raises for an effect that depends on the prompt, which has no such weights.
    """
    tensors = effect.folded()
    if not tensors:
        yield  # nothing to fold: the model already has the weights of an export
        return
    with effect.lifted():
        # A weight that two modules share goes by its first name only.
        own = dict(effect.model.named_parameters())
        for name in tensors:
            if name not in own:
                raise InputError(
                    f"{name} shares its values with another weight, so it cannot be exported "
                    "exactly"
                )
        with replaced(effect.model, tensors):
            yield


def output_rows(module: nn.Module, tensor: torch.Tensor) -> torch.Tensor:
    """Transpose a module's weight if needed so that its rows are outputs, or transpose it back.

    GPT-2's `Conv1D` keeps its weight transposed. A bias is returned unchanged.
    """
    return tensor.T if isinstance(module, Conv1D) and tensor.dim() == 2 else tensor
