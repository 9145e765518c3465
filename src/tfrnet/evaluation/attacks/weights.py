"""Attacks on the weights themselves, on exactly what an export ships."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from tfrnet.core.effect import Effect
from tfrnet.core.errors import InputError
from tfrnet.evaluation.attacks.lifted import lifted
from tfrnet.masking.channels import ChannelIndex
from tfrnet.masking.mask import dormant
from tfrnet.training.weights_effect import WeightsEffect

if TYPE_CHECKING:
    from transformers import PreTrainedModel


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
    if isinstance(effect, WeightsEffect):
        yield  # trained weights are ordinary ones: the model is what an export ships already
        return
    with lifted(effect):
        # A weight that two modules share goes by its first name only.
        own = dict(effect.model.named_parameters())
        for name in tensors:
            if name not in own:
                raise InputError(
                    f"{name} shares its values with another weight: no export is exact"
                )
        with replaced(effect.model, tensors):
            yield


@contextmanager
def rescaled(model: PreTrainedModel, index: ChannelIndex) -> Iterator[None]:
    """Scale every output row of a folded model to the median row norm of its module, for a while.

    That is how a thief would undo a mask without knowing it: rows of one module are about equally
    long, so a short one was scaled down. Rows of zeros stay, and do not count for the median.
    """
    tensors = {}
    for projection in index:
        module = model.get_submodule(projection.name)
        factors = _to_median_norm(output_rows(module, module.get_parameter("weight").detach()))
        for part, parameter in module.named_parameters(recurse=False):
            rows = output_rows(module, parameter.detach())
            scaled = rows * (factors if rows.dim() == 1 else factors.unsqueeze(1))
            name = f"{projection.name}.{part}"
            tensors[name] = output_rows(module, scaled.to(parameter.dtype)).contiguous()
    with replaced(model, tensors):
        yield


def harden(values: torch.Tensor, threshold: float) -> torch.Tensor:
    """Return the mask with its dormant channels at 0, where no rescaling brings them back."""
    return values.masked_fill(dormant(values, threshold), 0.0)


def output_rows(module: nn.Module, tensor: torch.Tensor) -> torch.Tensor:
    """Turn a module's weight so that its rows are outputs, or turn such rows back.

    GPT-2's `Conv1D` keeps its weight transposed. A bias is left alone.
    """
    return tensor.T if isinstance(module, Conv1D) and tensor.dim() == 2 else tensor


def _to_median_norm(rows: torch.Tensor) -> torch.Tensor:
    """Return the factor of each row. Shape [out], at least float32."""
    wide = rows.to(torch.promote_types(rows.dtype, torch.float32))
    norms = wide.norm(dim=1)
    alive = norms > 0
    if not bool(alive.any()):
        return torch.ones_like(norms)
    return torch.where(alive, norms[alive].quantile(0.5) / norms, 1.0)
