"""lora: a state as a LoRA adapter, where that is exact."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from tfrnet.core.errors import InputError, TfrnetWarning
from tfrnet.export.adapter import adapter_usage, write_adapter
from tfrnet.export.format import Format, Job
from tfrnet.masking.mask import ChannelMask
from tfrnet.models.lora import ADAPTER, LoraOptions, lora_config
from tfrnet.training.lora_effect import LoraEffect

if TYPE_CHECKING:
    from peft import LoraConfig
    from transformers import PreTrainedModel

# PEFT has one switch for the biases of all projections, and merges none where a bias is lacking.
_NOT_MERGEABLE = (
    "Some of the changed projections have biases and others have none. PEFT runs such an adapter "
    "beside its base model but cannot merge it, and tfrnet, which merges adapters, cannot load it; "
    "formats ia3 and dense have no such limit."
)


class Lora(Format):
    """Exact for methods that train an adapter, and for a mask that changes few channels.

    One changed channel is one row of the weights, so a change of rank one.
    """

    name = "lora"
    about = "a PEFT LoRA adapter, where that is exact (trained=lora, or few changed channels)"
    library = "peft"
    relation = "adapter"
    removable = True
    options = ("rank",)

    def write(self, job: Job, folder: Path) -> float:
        """Write the adapter, or say why there is none."""
        effect = job.effect
        if isinstance(effect, LoraEffect):
            return write_adapter(job, folder, _config_of(effect), _factors_of(effect))
        if not isinstance(effect, ChannelMask):
            raise InputError(
                f"this state of {job.origin.method} holds trained weights, which a LoRA adapter of "
                "low rank cannot reproduce; use --format dense"
            )
        changed = _changed(effect)
        rank = _rank(changed, job.options.rank)
        if _partly_biased(effect.model, changed):
            warnings.warn(_NOT_MERGEABLE, TfrnetWarning, stacklevel=2)
        with_bias = any(_bias(effect.model.get_submodule(name)) is not None for name in changed)
        config = lora_config(effect.model, LoraOptions(rank, rank, tuple(changed)))
        config.lora_bias = with_bias
        tensors: dict[str, torch.Tensor] = {}
        for name, values in changed.items():
            module = effect.model.get_submodule(name)
            for part, tensor in _factors(module, values, rank, with_bias).items():
                tensors[f"{name}.{part}"] = tensor
        return write_adapter(job, folder, config, tensors)

    def usage(self, job: Job, folder: str) -> str:
        """Return how to load the adapter, and what cannot be done with it."""
        effect = job.effect
        if isinstance(effect, ChannelMask) and _partly_biased(effect.model, _changed(effect)):
            return f"{adapter_usage(folder)}\n\n{_NOT_MERGEABLE}"
        return adapter_usage(folder)


def _config_of(effect: LoraEffect) -> LoraConfig:
    layer = next(iter(effect.layers.values()))
    options = LoraOptions(layer.r[ADAPTER], layer.lora_alpha[ADAPTER], tuple(effect.layers))
    return lora_config(effect.model, options)


def _factors_of(effect: LoraEffect) -> dict[str, torch.Tensor]:
    return {f"{name}.weight": parameter for name, parameter in effect.parameters.items()}


def _changed(mask: ChannelMask) -> dict[str, torch.Tensor]:
    """Return the mask of every projection that it changes."""
    parts = zip(mask.index, mask.index.split(mask.values), strict=True)
    found = {part.name: values for part, values in parts if bool((values != 1).any())}
    if not found:
        raise InputError("the state changes no channel, so there is nothing to put in an adapter")
    return found


def _rank(changed: dict[str, torch.Tensor], most: int) -> int:
    """Return the rank that all projections need, or raise if it is more than allowed."""
    counts = {name: int((values != 1).sum()) for name, values in changed.items()}
    too_many = [name for name, count in counts.items() if count > most]
    largest = max(counts, key=lambda name: counts[name])
    if too_many:
        raise InputError(
            f"{len(too_many)} of {len(changed)} changed projections have more than {most} changed "
            f"channels (most: {counts[largest]}, in {largest}), so a LoRA adapter of rank {most} "
            f"would not be exact; use --format ia3 or dense, or --rank {counts[largest]}"
        )
    return counts[largest]


def _factors(
    module: nn.Module, values: torch.Tensor, rank: int, with_bias: bool
) -> dict[str, torch.Tensor]:
    """Return A and B with B A = (diag(m) - 1) W, filled up with zeros to the rank."""
    weight = module.weight
    assert isinstance(weight, torch.Tensor)
    if not weight.is_floating_point():
        raise InputError("the model is quantised, so its rows cannot be copied; use --format ia3")
    rows = weight.detach().T if isinstance(module, Conv1D) else weight.detach()
    wide = torch.promote_types(weight.dtype, torch.float32)
    lost = values.to(weight.device, wide) - 1
    places = lost.nonzero().flatten()
    a = torch.zeros(rank, rows.shape[1], dtype=wide, device=weight.device)
    b = torch.zeros(rows.shape[0], rank, dtype=wide, device=weight.device)
    a[: len(places)] = rows[places].to(wide)
    b[places, torch.arange(len(places), device=b.device)] = lost[places]
    found = {"lora_A.weight": a, "lora_B.weight": b}
    if with_bias:
        bias = _bias(module)
        found["lora_B.bias"] = torch.zeros_like(lost) if bias is None else lost * bias.to(wide)
    return found


def _partly_biased(model: PreTrainedModel, names: Iterable[str]) -> bool:
    """Tell whether some of the projections have a bias and others have none."""
    return len({_bias(model.get_submodule(name)) is None for name in names}) > 1


def _bias(module: nn.Module) -> torch.Tensor | None:
    bias = getattr(module, "bias", None)
    return bias.detach() if isinstance(bias, torch.Tensor) else None


FORMAT = Lora()
