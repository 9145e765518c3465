"""LoRA by PEFT: how an adapter is described, put on a model, and taken off again."""

from __future__ import annotations

from collections.abc import Sequence
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


def lora_config(
    model: PreTrainedModel, rank: int, alpha: float, target_modules: str | Sequence[str]
) -> LoraConfig:
    """Describe an adapter on some projections: all-linear, names, or a pattern."""
    from peft import LoraConfig

    return LoraConfig(
        r=rank,
        lora_alpha=alpha,
        target_modules=target_modules if isinstance(target_modules, str) else list(target_modules),
        task_type="CAUSAL_LM",
        # GPT-2's projections keep their weights transposed.
        fan_in_fan_out=any(isinstance(module, Conv1D) for module in model.modules()),
    )


def put_lora_on(model: PreTrainedModel, config: LoraConfig, seed: int = 0) -> None:
    """Put an adapter on a model, which then wants gradients of the adapter's factors only.

    They start from random numbers; those of the rest of the program stay as they are.
    """
    from peft.tuners.lora import LoraModel

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        LoraModel(model, {ADAPTER: config}, ADAPTER)


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
