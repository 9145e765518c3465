"""Finding layers, their outputs and projections in any model, whatever it calls them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from tfrnet.core.errors import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from tfrnet.models.forward import Batch


class _AllFound(Exception):  # noqa: N818  (no error: all that was wanted is there)
    pass


def decoder_layers(model: PreTrainedModel) -> list[nn.Module]:
    """Return the layers that read text, in order."""
    count = model.config.get_text_config().num_hidden_layers
    # First in the text decoder, since a tower for images may have as many layers.
    for part in (model.get_decoder(), model):
        for module in part.modules():
            if isinstance(module, nn.ModuleList) and len(module) == count:
                return list(module)
    raise InputError(f"the layers of {type(model).__name__} cannot be found")


def hidden_after(model: PreTrainedModel, layer: nn.Module, batch: Batch) -> torch.Tensor:
    """Return the output of a layer at all positions except padding. [T, D].

    Later layers are not computed.
    """
    (hidden,) = hidden_after_each(model, [layer], batch.input_ids, batch.attention_mask)
    return hidden[batch.attention_mask.to(hidden.device).bool()]


def hidden_after_each(
    model: PreTrainedModel,
    layers: Sequence[nn.Module],
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    to_the_end: bool = False,
) -> list[torch.Tensor]:
    """Return the outputs of some layers, in order, including padding. Each is [B, N, D].

    Layers after the last of them are not computed, unless `to_the_end`: weights that are spread
    over processes are only put away at the end of a pass.
    """
    with outputs_kept(layers, to_the_end) as found, suppress(_AllFound):
        model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False)
    return found


@contextmanager
def outputs_kept(
    layers: Sequence[nn.Module], to_the_end: bool = True
) -> Iterator[list[torch.Tensor]]:
    """Keep the outputs of some layers of a pass, in order, in the list that is yielded.

    Unless `to_the_end`, the pass is broken off after the last of them.
    """
    found: list[torch.Tensor] = []

    def keep(module: nn.Module, inputs: Any, output: Any) -> None:
        found.append(output[0] if isinstance(output, tuple) else output)
        if len(found) == len(layers) and not to_the_end:
            raise _AllFound

    handles = [layer.register_forward_hook(keep) for layer in layers]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def is_projection(module: nn.Module) -> bool:
    """Tell whether a module is linear, so that a mask can scale each of its output units.

    Some routers of experts are linear modules that return the best of their outputs, not all.
    """
    return isinstance(module, (nn.Linear, Conv1D)) and not hasattr(module, "top_k")


def output_width(module: nn.Module) -> int:
    """Return the number of output units (GPT-2's `Conv1D` keeps its weight transposed)."""
    return module.nf if isinstance(module, Conv1D) else module.out_features  # type: ignore[return-value]
