"""The base model itself while a method's effect stays at hand, for a while."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from tfrnet.core.effect import Effect
from tfrnet.core.errors import InputError
from tfrnet.masking.mask import ChannelMask
from tfrnet.training.lora_effect import LoraEffect
from tfrnet.training.weights_effect import WeightsEffect

# What peft writes on a model that carries an adapter.
_ADAPTER_MARKS = ("peft_config", "_hf_peft_config_loaded")


@contextmanager
def lifted(effect: Effect) -> Iterator[None]:
    """Give the model its own modules and weights back for a while.

    The effect's own objects are put aside and taken up again, so nothing can be rounded.
    """
    if isinstance(effect, ChannelMask):
        with other_mask(effect, torch.ones_like(effect.values)):
            yield
    elif isinstance(effect, WeightsEffect):
        with _own_weights(effect):
            yield
    elif isinstance(effect, LoraEffect):
        with _without_adapter(effect), _without_hooks(effect.model):
            yield
    else:
        raise InputError(f"a {type(effect).__name__} cannot be taken off a model for a while")


@contextmanager
def other_mask(mask: ChannelMask, values: torch.Tensor) -> Iterator[None]:
    """Let a mask have other values for a while."""
    own = mask.values
    try:
        mask.set(values)
        yield
    finally:
        mask.set(own)


@contextmanager
def _own_weights(effect: WeightsEffect) -> Iterator[None]:
    trained = [(parameter, parameter.data) for parameter in effect.parameters.values()]
    try:
        effect.detach()
        yield
    finally:
        for parameter, values in trained:
            parameter.data = values


@contextmanager
def _without_adapter(effect: LoraEffect) -> Iterator[None]:
    """Put the projections in the place of the adapter's wrappers around them."""
    facts = vars(effect.model)
    marks = {name: facts.pop(name) for name in _ADAPTER_MARKS if name in facts}
    try:
        for name, layer in effect.layers.items():
            _put(effect.model, name, layer.get_base_layer())
        yield
    finally:
        for name, layer in effect.layers.items():
            _put(effect.model, name, layer)
        facts.update(marks)


@contextmanager
def _without_hooks(model: nn.Module) -> Iterator[None]:
    """Leave out what a method does to inputs; hooks of anyone else stay."""
    found = []
    for module in model.modules():
        hooks = module._forward_pre_hooks
        others = {k: h for k, h in hooks.items() if not type(h).__module__.startswith("tfrnet.")}
        if len(others) < len(hooks):
            found.append((module, hooks, others))
    try:
        for module, _, others in found:
            module._forward_pre_hooks = OrderedDict(others)
        yield
    finally:
        for module, hooks, _ in found:
            module._forward_pre_hooks = hooks


def _put(model: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, module)
