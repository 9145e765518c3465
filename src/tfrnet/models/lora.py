"""LoRA by PEFT: how an adapter is described, put on a model, and taken off again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

if TYPE_CHECKING:
    from peft import LoraConfig
    from transformers import PreTrainedModel

# PEFT's name of the adapter; a model has one of ours at a time.
ADAPTER = "default"
# What PEFT writes on a model that carries an adapter.
MARKS = ("peft_config", "_hf_peft_config_loaded")


@dataclass(frozen=True)
class LoraOptions:
    """An adapter of scale alpha / rank on some projections: all-linear, names, or a pattern."""

    rank: int
    alpha: float
    target_modules: str | tuple[str, ...] = "all-linear"
    seed: int = 0


def lora_config(model: PreTrainedModel, options: LoraOptions) -> LoraConfig:
    """Return PEFT's description of an adapter."""
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
    """Put an adapter on a model and freeze everything else.

    The program's random number generator is left as it was.
    """
    from peft.tuners.lora import LoraModel

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(options.seed)
        LoraModel(model, {ADAPTER: lora_config(model, options)}, ADAPTER)


def lora_layers(model: PreTrainedModel) -> dict[str, Any]:
    """Return the projections that have an adapter, by their names."""
    from peft.tuners.lora import LoraLayer

    return {name: m for name, m in model.named_modules() if isinstance(m, LoraLayer)}


def take_lora_off(model: PreTrainedModel) -> None:
    """Give a model its own modules back, also where putting an adapter on ended half-way."""
    for name, layer in lora_layers(model).items():
        put_module(model, name, layer.get_base_layer())
    for mark in MARKS:
        model.__dict__.pop(mark, None)


def put_module(model: nn.Module, name: str, module: nn.Module) -> None:
    """Put a module in the place of the one that has the name."""
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, module)
