"""Choosing the batch size of a forward pass by the memory available."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

from tfrnet.core.errors import InputError
from tfrnet.models.checkpointing import can_be_checkpointed
from tfrnet.models.layers import decoder_layers, is_projection, output_width

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# The default where nothing is known of the memory.
DEFAULT_BATCH = 8
# Otherwise the limit is on tokens, and this on examples is seldom reached.
_MOST_EXAMPLES = 64
# On a CPU passes of more tokens are hardly faster, and only take more memory.
_ENOUGH_TOKENS_CPU = 512
# What a pass costs there besides its tokens, in tokens. Measured: 40 with 135 M parameters and 34
# with 409 M; with gradients 26 and 21.
_OVERHEAD_CPU = 30
# Bytes that the gradients of a pass's examples may take there; there are some six copies of them.
_GRADIENT_BYTES_CPU = 100_000_000
# This many tokens keep a GPU busy; without a gradient there is room for more.
_MOST_TOKENS = 8192
_MOST_FORWARD_TOKENS = 16384
# With fewer tokens the GPU idles for longer than recomputing activations takes. Compiled layers
# save GPU time, but hardly any host time.
_ENOUGH_TOKENS = 1024
_ENOUGH_TOKENS_COMPILED = 2048
# The memory for activations: this share of the weights or, for small models, what is left of the
# bytes that a 7B model and its activations take; but never more than this share of free memory.
_SHARE_OF_WEIGHTS = 0.335
_WEIGHTS_AND_ACTIVATIONS = 18_000_000_000
_SHARE_OF_FREE = 0.8
# A method's other tensors are subtracted, except for this share.
_LEAST_SHARE_OF_BUDGET = 0.25
# A backward pass needs 2 times the size of the projections' outputs, or 1.15 times if layers are
# compiled; with checkpointing, 1.5 times that of the layers' outputs plus the need of one layer.
# Measured on an H200 with bfloat16, 32 layers and a width of 4,096; about the same on a CPU.
_KEPT_OVER_OUTPUTS = 2.0
_KEPT_OVER_OUTPUTS_COMPILED = 1.15
_KEPT_OVER_LAYER_INPUTS = 1.5
# In addition, every example has its own copy of the mask and its gradient.
_SHARE_OF_GRADIENTS = 0.1
_GRADIENT_COPIES = 2


@dataclass(frozen=True)
class Passes:
    """Limits of one pass: examples, tokens including padding, and tokens without a gradient.

    Also whether activations are checkpointed and layers compiled, and, if examples are to be
    grouped by it, what a pass costs besides its tokens, in tokens.
    """

    examples: int = DEFAULT_BATCH
    tokens: int | None = None
    forward_tokens: int | None = None
    gradient_checkpointing: bool = False
    compiled: bool = False
    overhead: int | None = None


def choose_passes(
    model: PreTrainedModel,
    longest: int,
    checkpointing: bool,
    compiled: bool = False,
    held: int = 0,
) -> Passes:
    """Return passes that fit in the free memory of the model's GPU, or are fastest on a CPU.

    `longest` is the length of the longest example, in tokens; `held` is the number of bytes that a
    request keeps on the GPU in addition.
    """
    devices = {parameter.device for parameter in model.parameters()}
    kinds = {device.type for device in devices}
    if kinds == {"cpu"}:
        # There is room for as many of the longest as a pass has by default.
        tokens = max(_ENOUGH_TOKENS_CPU, DEFAULT_BATCH * longest)
        return Passes(
            *(_most_examples_cpu(model), tokens, tokens),
            gradient_checkpointing=checkpointing,
            compiled=compiled,
            overhead=_OVERHEAD_CPU,
        )
    if kinds != {"cuda"}:
        return Passes(gradient_checkpointing=checkpointing, compiled=compiled)
    budget = activation_budget(model, min(map(_free_bytes, devices)), held)
    return passes_within(budget, model, longest, checkpointing, compiled)


def _most_examples_cpu(model: PreTrainedModel) -> int:
    try:
        channels = sum(sum(_output_widths(block)) for block in decoder_layers(model))
    except InputError:  # an unusual model, whose memory use cannot be predicted
        return DEFAULT_BATCH
    most = _GRADIENT_BYTES_CPU // (4 * max(1, channels))
    return max(DEFAULT_BATCH, min(most, _MOST_EXAMPLES))


def _free_bytes(device: torch.device) -> int:
    free, _ = torch.cuda.mem_get_info(device)
    return int(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))


def activation_budget(model: PreTrainedModel, free: int, held: int = 0) -> int:
    """Return how many bytes activations may take, given the free memory."""
    weights: int = sum(parameter.nbytes for parameter in model.parameters())
    wanted = max(_WEIGHTS_AND_ACTIVATIONS - weights, int(_SHARE_OF_WEIGHTS * weights))
    budget = min(wanted, int(_SHARE_OF_FREE * free))
    return max(budget - held, int(_LEAST_SHARE_OF_BUDGET * budget))


def passes_within(
    budget: int,
    model: PreTrainedModel,
    longest: int,
    checkpointing: bool,
    compiled: bool = False,
) -> Passes:
    """Return the passes whose activations fit in `budget` bytes.

    Checkpointing is used only if there would otherwise be room for too few tokens, or not for the
    longest example.
    """
    try:
        outputs = [widths for block in decoder_layers(model) if (widths := _output_widths(block))]
    except InputError:  # an unusual model, whose memory use cannot be predicted
        outputs = []
    if not outputs:
        return Passes(gradient_checkpointing=checkpointing, compiled=compiled)
    hidden, size = model.config.get_text_config().hidden_size, model.dtype.itemsize
    examples = int(_SHARE_OF_GRADIENTS * budget / (_GRADIENT_COPIES * 4 * sum(map(sum, outputs))))
    budget = int((1 - _SHARE_OF_GRADIENTS) * budget)
    over_outputs = _KEPT_OVER_OUTPUTS_COMPILED if compiled else _KEPT_OVER_OUTPUTS
    kept = over_outputs * size * sum(map(sum, outputs))
    tokens = int(budget / kept)
    enough = _ENOUGH_TOKENS_COMPILED if compiled else _ENOUGH_TOKENS
    if tokens < max(enough, longest):
        checkpointing = checkpointing or can_be_checkpointed(model)
    if checkpointing:
        kept = _KEPT_OVER_LAYER_INPUTS * size * hidden * len(outputs)
        kept += over_outputs * size * max(map(sum, outputs))
        tokens = int(budget / kept)
    forward = int(budget / (over_outputs * size * max(map(sum, outputs))))
    return Passes(
        max(1, min(examples, _MOST_EXAMPLES)),
        max(1, min(tokens, _MOST_TOKENS)),
        max(1, min(forward, _MOST_FORWARD_TOKENS)),
        checkpointing,
        compiled,
    )


def _output_widths(block: nn.Module) -> list[int]:
    """Return the widths of a layer's projections."""
    return [output_width(module) for module in block.modules() if is_projection(module)]
