"""Other weights for a while: what an export ships, or what an attack makes of it."""

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
    """Give the named parameters other values for a while.

    The parameters let go of their own tensors and take up the same ones afterwards, so nothing is
    copied back and nothing can be rounded.
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
    """Have the model hold in its weights what an export ships, and no live effect, for a while.

    An effect that depends on the prompt has no such weights, and raises with its reason.
    """
    tensors = effect.folded()
    if not tensors:
        yield  # nothing to fold: the model's own weights are what an export ships already
        return
    with effect.lifted():
        # A weight that two modules share goes by its first name only.
        own = dict(effect.model.named_parameters())
        for name in tensors:
            if name not in own:
                raise InputError(
                    f"{name} shares its values with another weight: no export is exact"
                )
        with replaced(effect.model, tensors):
            yield


def output_rows(module: nn.Module, tensor: torch.Tensor) -> torch.Tensor:
    """Turn a module's weight so that its rows are outputs, or turn such rows back.

    GPT-2's `Conv1D` keeps its weight transposed. A bias is left alone.
    """
    return tensor.T if isinstance(module, Conv1D) and tensor.dim() == 2 else tensor
