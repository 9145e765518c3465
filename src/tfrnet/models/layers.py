"""The decoder's layers, whatever a model calls them, and what comes out of one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from tfrnet.errors import InputError
from tfrnet.models.forward import Batch

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class _Enough(Exception):  # noqa: N818  (no error: it carries a result)
    def __init__(self, hidden: torch.Tensor) -> None:
        self.hidden = hidden


def decoder_layers(model: PreTrainedModel) -> list[nn.Module]:
    """Return the layers in their order."""
    count = model.config.get_text_config().num_hidden_layers
    lists = [m for m in model.modules() if isinstance(m, nn.ModuleList) and len(m) == count]
    if not lists:
        raise InputError(f"the layers of {type(model).__name__} cannot be found")
    return list(lists[0])


def hidden_after(model: PreTrainedModel, layer: nn.Module, batch: Batch) -> torch.Tensor:
    """Return the output of a layer at all positions that are not padding. [T, D].

    Later layers are not computed.
    """

    def stop(module: nn.Module, inputs: Any, output: Any) -> None:
        raise _Enough(output[0] if isinstance(output, tuple) else output)

    handle = layer.register_forward_hook(stop)
    try:
        model(input_ids=batch.input_ids, attention_mask=batch.attention_mask, use_cache=False)
    except _Enough as found:
        hidden = found.hidden
    finally:
        handle.remove()
    return hidden[batch.attention_mask.to(hidden.device).bool()]
