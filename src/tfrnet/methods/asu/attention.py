"""Attention with its scores divided by a temperature."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import nn

from tfrnet.core.errors import InputError
from tfrnet.models.layers import decoder_layers

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@contextmanager
def smoothed_attention(
    model: PreTrainedModel, temperature: float, layers: Collection[int] | None = None
) -> Iterator[None]:
    """Divide the scores of every head by `temperature`, in some layers or all.

    This changes the scaling factor that transformers passes to every attention backend, so it works
    with all of them.
    """
    blocks = decoder_layers(model)
    wanted = range(len(blocks)) if layers is None else sorted(layers)
    if outside := [i for i in wanted if i >= len(blocks)]:
        raise InputError(
            f"smoothed_layers names layer {outside[0]}, but {type(model).__name__} has layers 0 to "
            f"{len(blocks) - 1}"
        )
    if not wanted:
        raise InputError("smoothed_layers is empty, so the teacher would be the model itself")
    found: list[Any] = [attention for i in wanted for attention in _attentions(blocks[i])]
    if not found:
        raise InputError(
            f"{type(model).__name__} has no attention with a scaling factor, which smoothing needs"
        )
    own = [attention.scaling for attention in found]
    try:
        for attention in found:
            attention.scaling = attention.scaling / temperature
        yield
    finally:
        for attention, scaling in zip(found, own, strict=True):
            attention.scaling = scaling


def _attentions(block: nn.Module) -> list[nn.Module]:
    return [
        module
        for module in block.modules()
        if isinstance(getattr(module, "scaling", None), float)
        and "attention" in type(module).__name__.lower()
    ]
