"""Gradient checkpointing: saves memory by recomputing activations in the backward pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from tfrnet.core.errors import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def can_be_checkpointed(model: PreTrainedModel) -> bool:
    """Tell whether a model's layers support gradient checkpointing."""
    return any(isinstance(module, GradientCheckpointingLayer) for module in model.modules())


@contextmanager
def checkpointed(model: PreTrainedModel, wanted: bool) -> Iterator[None]:
    """Recompute each layer's activations in the backward pass instead of keeping them.

    transformers' own switch works only in training mode, where some layers apply dropout.
    """
    layers = [m for m in model.modules() if wanted and isinstance(m, GradientCheckpointingLayer)]
    if wanted and not layers:
        raise InputError(
            f"{type(model).__name__} has no layers that can be checkpointed; leave out "
            "--gradient-checkpointing"
        )
    own_forwards = [layer.__dict__.get("forward") for layer in layers]
    for layer in layers:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
    try:
        yield
    finally:
        for layer, own in zip(layers, own_forwards, strict=True):
            del layer.__dict__["forward"]
            if own is not None:
                layer.forward = own
