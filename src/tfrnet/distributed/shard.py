"""Sharding a model over the processes of a team (FSDP2), if it does not fit on one GPU."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch
from torch import nn

from tfrnet.core.errors import InputError
from tfrnet.models.fingerprint import ModelFacts, fingerprint
from tfrnet.models.layers import decoder_layers

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# What `accelerate launch --use_fsdp` sets.
_VARIABLE = "ACCELERATE_USE_FSDP"


def sharding_wanted() -> bool:
    """Tell whether the launcher asks for sharded weights."""
    return os.environ.get(_VARIABLE, "").lower() in ("true", "1")


def shard(model: PreTrainedModel, device: torch.device) -> None:
    """Keep only a shard of every layer in each process; a layer is gathered while it computes."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    if model.dtype == torch.float16:
        raise InputError(
            "float16 scores are rescaled by each process on its own, which is not possible with "
            "sharded weights; use bfloat16"
        )
    _known[model] = fingerprint(model), ModelFacts.of(model)
    model.requires_grad_(False)
    mesh = init_device_mesh(device.type, (torch.distributed.get_world_size(),))
    for layer in decoder_layers(model):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)


# For sharded models, whose full weights can no longer be read.
_known: WeakKeyDictionary[nn.Module, tuple[str, ModelFacts]] = WeakKeyDictionary()


def known_fingerprint(model: PreTrainedModel) -> tuple[str, ModelFacts]:
    """Return a model's fingerprint and facts, even if the model is sharded."""
    return _known.get(model) or (fingerprint(model), ModelFacts.of(model))
