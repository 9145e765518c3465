"""Folding a mask into the weights, which gives an equivalent ordinary model."""

from __future__ import annotations

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from tfrnet.core.errors import InputError
from tfrnet.masking.channels import ChannelIndex


def folded_tensors(
    model: nn.Module, index: ChannelIndex, mask: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Return new weights and biases for the masked projections; the model is not changed.

    (x W + b) * m = x (W * m) + b * m, along W's output dimension.
    """
    owners: dict[torch.Tensor, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        owners.setdefault(parameter, []).append(name)
    folded = {}
    for projection, values in zip(index, index.split(mask), strict=True):
        module = model.get_submodule(projection.name)
        if bool((values == 1).all()):
            continue
        for part, parameter in module.named_parameters(recurse=False):
            name = f"{projection.name}.{part}"
            others = [owner for owner in owners[parameter] if owner != name]
            if others:
                raise InputError(
                    f"{name} shares its values with {others[0]}, so the mask of one "
                    "cannot be folded into it"
                )
            if not parameter.is_floating_point():
                raise InputError(
                    f"{name} is quantised, so a mask cannot be folded into it; begin with the "
                    "model as it was before it was quantised"
                )
            folded[name] = _scale_outputs(module, parameter, values)
    return folded


def _scale_outputs(
    module: nn.Module, parameter: torch.Tensor, values: torch.Tensor
) -> torch.Tensor:
    wide = parameter.detach().to(torch.promote_types(parameter.dtype, torch.float32))
    values = values.to(wide)
    outputs_last = parameter.dim() == 1 or isinstance(module, Conv1D)
    scaled = wide * (values if outputs_last else values.unsqueeze(1))
    return scaled.to(parameter.dtype)
