"""LoRA with PEFT: configuring an adapter, adding it to a model and removing it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

if TYPE_CHECKING:
    from peft import LoraConfig
    from transformers import PreTrainedModel

# PEFT's name for the adapter; a model has at most one of ours at a time.
ADAPTER = "default"
# The attributes that PEFT sets on a model with an adapter.
MARKS = ("peft_config", "_hf_peft_config_loaded")


@dataclass(frozen=True)
class LoraOptions:
    """An adapter scaled by alpha / rank; its targets are all-linear, names or a pattern."""

    rank: int
    alpha: float
    target_modules: str | tuple[str, ...] = "all-linear"
    seed: int = 0


def lora_config(model: PreTrainedModel, options: LoraOptions) -> LoraConfig:
    """Return the configuration of an adapter for PEFT."""
    from peft import LoraConfig

    targets = options.target_modules
    return LoraConfig(
        r=options.rank,
        lora_alpha=options.alpha,
        target_modules=targets if isinstance(targets, str) else list(targets),
        task_type="CAUSAL_LM",
        # GPT-2's projections keep their weights transposed.
        fan_in_fan_out=any(isinstance(module, Conv1D) for module in model.modules()),
    )


def put_lora_on(model: PreTrainedModel, options: LoraOptions) -> None:
    """Add an adapter to a model and freeze everything else.

    The state of the global random number generator is restored.
    """
    from peft.tuners.lora import LoraModel

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(options.seed)
        LoraModel(model, {ADAPTER: lora_config(model, options)}, ADAPTER)


def lora_layers(model: PreTrainedModel) -> dict[str, Any]:
    """Return the projections that have an adapter, by name."""
    from peft.tuners.lora import LoraLayer

    return {name: m for name, m in model.named_modules() if isinstance(m, LoraLayer)}


def take_lora_off(model: PreTrainedModel) -> None:
    """Restore a model's own modules, even if adding the adapter failed half-way."""
    for name, layer in lora_layers(model).items():
        put_module(model, name, layer.get_base_layer())
    for mark in MARKS:
        model.__dict__.pop(mark, None)


def put_module(model: nn.Module, name: str, module: nn.Module) -> None:
    """Replace the module with the given name."""
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, module)
