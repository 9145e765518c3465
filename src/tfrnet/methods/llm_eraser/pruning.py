"""Pruned MLP channels with an adapter; a state holds the mask and the adapter's factors."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from tfrnet.core.errors import InputError
from tfrnet.core.tensors import State
from tfrnet.methods.llm_eraser.scores import CHANNEL_DIM
from tfrnet.models.layers import decoder_layers
from tfrnet.models.lora import LoraOptions
from tfrnet.training.lora_effect import LoraEffect

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# 1: kept, 0: pruned; the MLP channels of all layers, in order.
MASK = "eraser.mask"


@dataclass(frozen=True)
class GatedMlp:
    """One layer's down(act(gate(x)) * up(x)): its name and its number of channels."""

    name: str
    width: int

    def projection(self, part: str) -> str:
        """Return a projection's name in the model."""
        return f"{self.name}.{part}"


def find_mlps(model: PreTrainedModel) -> list[GatedMlp]:
    """Return the layers' MLPs in their order."""
    names = {module: name for name, module in model.named_modules()}
    found = []
    for number, layer in enumerate(decoder_layers(model)):
        inside = dict(layer.named_modules())
        missing = [p for p in CHANNEL_DIM if not isinstance(inside.get(f"mlp.{p}"), nn.Linear)]
        if missing:
            there = [name for name in inside if name.startswith("mlp.")]
            raise InputError(
                f"channels of gated MLPs are pruned, with linear maps {', '.join(CHANNEL_DIM)}, "
                f"but the MLP in layer {number} of {type(model).__name__} has no "
                f"{' and no '.join(missing)}; it has {', '.join(there) or 'nothing'}"
            )
        down = inside["mlp.down_proj"]
        assert isinstance(down, nn.Linear)
        found.append(GatedMlp(names[inside["mlp"]], down.in_features))
    return found


class PrunedEffect(LoraEffect):
    """LoRA, and zeros for the input channels of `down_proj` that a state's mask prunes.

    The zeros are applied where the channel is read, so a pruned channel contributes nothing,
    whatever the adapter adds to its weights.
    """

    def __init__(self, model: PreTrainedModel, options: LoraOptions) -> None:
        self.mlps = find_mlps(model)  # first: an error leaves the model as it was
        self.channels = sum(mlp.width for mlp in self.mlps)
        self._pruned: dict[str, torch.Tensor] = {}
        self._handles: list[RemovableHandle] = []
        super().__init__(model, options)

    def split(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """Return the layers' parts of a flat tensor, as views."""
        return list(torch.split(flat, [mlp.width for mlp in self.mlps]))

    def mask_of(self, state: State) -> torch.Tensor:
        """Return a state's mask; before the first request all channels are kept."""
        return state.tensors().get(MASK, torch.ones(self.channels, dtype=torch.uint8))

    def show(self, state: State) -> None:
        """Apply a state to the model."""
        super().show(state)
        self._unhook()
        for mlp, kept in zip(self.mlps, self.split(self.mask_of(state)), strict=True):
            # Unpruned layers get no hook and cost nothing.
            if not bool(kept.all()):
                down = mlp.projection("down_proj")
                self._pruned[down] = kept == 0
                # On the adapter's wrapper, if there is one: its branch reads the channel too.
                module = self.model.get_submodule(down)
                self._handles.append(module.register_forward_pre_hook(_ZeroChannels(kept == 0)))

    def layout(self) -> list[list[Any]]:
        """Return the factors and the MLPs, with their sizes."""
        return [*super().layout(), *([mlp.name, mlp.width] for mlp in self.mlps)]

    def base_weight(self, name: str) -> nn.Parameter:
        """Return a projection's own weight, below its adapter if it has one."""
        layer = self.layers.get(name)
        module = self.model.get_submodule(name) if layer is None else layer.get_base_layer()
        weight = module.weight
        assert isinstance(weight, nn.Parameter)
        return weight

    def merged_weight(self, name: str) -> torch.Tensor:
        """Return a projection's weight with its adapter merged in."""
        weight = self.base_weight(name).detach()
        layer = self.layers.get(name)
        if layer is None:
            return weight
        change = sum(layer.get_delta_weight(adapter) for adapter in layer.active_adapters)
        merged: torch.Tensor = weight.to(torch.promote_types(weight.dtype, torch.float32)) + change
        return merged

    def folded(self) -> dict[str, torch.Tensor]:
        """Return the weights of an equivalent ordinary model."""
        weights = super().folded()
        for down, pruned in self._pruned.items():
            name = f"{down}.weight"
            weight = weights[name] if name in weights else self.base_weight(down)
            weights[name] = weight.detach().masked_fill(pruned.to(weight.device), 0)
        return weights

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """Restore the original model within a `with` block."""
        with super().lifted():
            # If there was an adapter, the hook went away with its wrapper.
            modules = [self.model.get_submodule(down) for down in self._pruned]
            found = [(module, module._forward_pre_hooks) for module in modules]
            try:
                for module, hooks in found:
                    others = {k: h for k, h in hooks.items() if not isinstance(h, _ZeroChannels)}
                    module._forward_pre_hooks = OrderedDict(others)
                yield
            finally:
                for module, hooks in found:
                    module._forward_pre_hooks = hooks

    def detach(self) -> None:
        """Remove the adapter and the hooks."""
        self._unhook()
        super().detach()

    def _unhook(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._pruned = {}


class _ZeroChannels:
    """Forward pre-hook that zeroes some input channels, even if they are not finite."""

    def __init__(self, channels: torch.Tensor) -> None:
        self.channels = channels

    def __call__(self, module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        if self.channels.device != inputs[0].device:
            self.channels = self.channels.to(inputs[0].device)  # once
        return (inputs[0].masked_fill(self.channels, 0), *inputs[1:])
