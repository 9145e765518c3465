"""Channel scores: the gradient of each example's loss with respect to its own mask.

Since h = m * a, the token sum of a * dL/dh in eq. channel_score is dL(x)/dm(c). So one forward
and one backward pass over a batch, with all weights frozen, gives every score.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch

from tfrnet.data.examples import Encoded, batches
from tfrnet.masking.mask import ChannelMask, FlattenedBatchError
from tfrnet.models.checkpointing import checkpointed
from tfrnet.models.forward import (
    Batch,
    PaddingSide,
    answer_losses,
    collate,
    frozen,
    input_device,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# A number per example, such as its loss, from a forward pass: [B].
Objective = Callable[["PreTrainedModel", Batch], torch.Tensor]

# Keeps small gradients above float16's smallest number; divided out again in float32.
_FLOAT16_LOSS_SCALE = 1024.0


@dataclass(frozen=True)
class ScoreOptions:
    """How scoring runs; nothing here changes the scores beyond rounding, but `tokens`."""

    batch_size: int = 8
    tokens: Literal["all", "answer"] = "all"
    padding_side: PaddingSide = "right"
    gradient_checkpointing: bool = False


@dataclass(frozen=True)
class ExampleGradients:
    """dL(x)/dm [B, C] and L(x) [B] of every example, where the model computes.

    In place of the loss L there may be another number per example.
    """

    gradients: torch.Tensor
    values: torch.Tensor


@dataclass(frozen=True)
class ChannelScores:
    """Means over examples of functions of dL(x)/dm(c), flat float32 over the channels.

    `magnitude` is psi of eq. channel_score; `signed` the same without the absolute value;
    `gradient` and `square` are the mean of dL/dm and of its square, without division by |T_x|;
    in `gradient` an example whose loss has reached the ceiling counts 0. `examples` are there only
    where they were asked for.
    """

    magnitude: torch.Tensor
    signed: torch.Tensor
    gradient: torch.Tensor
    square: torch.Tensor
    loss: float
    lowest_loss: float
    examples: ExampleGradients | None = None


def score_channels(
    mask: ChannelMask,
    examples: Sequence[Encoded],
    options: ScoreOptions,
    ceiling: float = math.inf,
    keep_examples: bool = False,
) -> ChannelScores:
    """Score every channel on the examples, under the mask that is applied now."""
    dtype = mask.values.dtype
    sums = torch.zeros(4, mask.index.total, dtype=dtype, device=mask.home)
    losses: list[float] = []
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []
    for gradients, token_counts, batch_losses in example_gradients(mask, examples, options):
        per_token = gradients / token_counts.unsqueeze(1)
        sums[0] += per_token.abs().sum(0)
        sums[1] += per_token.sum(0)
        sums[2] += gradients[(batch_losses < ceiling).to(gradients.device)].sum(0)
        sums[3] += gradients.square().sum(0)
        losses += batch_losses.tolist()
        if keep_examples:
            kept.append((gradients, batch_losses))
    sums /= len(examples)
    mean = math.fsum(losses) / len(losses)
    magnitude, signed, gradient, square = sums
    each = _in_order(kept, examples, options) if keep_examples else None
    return ChannelScores(magnitude, signed, gradient, square, mean, min(losses), each)


def gradients_of(
    mask: ChannelMask,
    examples: Sequence[Encoded],
    options: ScoreOptions,
    objective: Objective = answer_losses,
) -> ExampleGradients:
    """Return the gradients of all examples, in their order, without scores made of them."""
    found = example_gradients(mask, examples, options, objective)
    return _in_order([(gradients, values) for gradients, _, values in found], examples, options)


def _in_order(
    parts: Sequence[tuple[torch.Tensor, torch.Tensor]],
    examples: Sequence[Encoded],
    options: ScoreOptions,
) -> ExampleGradients:
    """Return what came batch by batch in the order of the examples."""
    came = [i for group in batches(examples, options.batch_size) for i in group]
    home = parts[0][0].device
    gradients = torch.empty(len(came), parts[0][0].shape[1], dtype=parts[0][0].dtype, device=home)
    values = torch.empty(len(came), dtype=parts[0][1].dtype, device=home)
    start = 0
    for part, numbers in parts:
        places = torch.tensor(came[start : start + len(part)], device=home)
        gradients[places], values[places] = part, numbers.to(home)
        start += len(part)
    return ExampleGradients(gradients, values)


def example_gradients(
    mask: ChannelMask,
    examples: Sequence[Encoded],
    options: ScoreOptions,
    objective: Objective = answer_losses,
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Yield, batch by batch, dL(x)/dm [B, C], |T_x| [B] and L(x) [B]."""
    device = input_device(mask.model)
    batch_size = options.batch_size
    with frozen(mask.model), checkpointed(mask.model, options.gradient_checkpointing):
        pending = batches(examples, batch_size)
        while pending:
            group = pending.pop(0)
            batch = collate([examples[i] for i in group], device, options.padding_side)
            try:
                yield _batch_gradients(mask, batch, options, objective)
            except FlattenedBatchError:
                if len(group) == 1:
                    raise
                # Some mixtures of experts route tokens out of their batch; one example at a time
                # they can still be told apart.
                pending = [[i] for i in group] + [[i] for rest in pending for i in rest]


def _batch_gradients(
    mask: ChannelMask, batch: Batch, options: ScoreOptions, objective: Objective
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    positions = batch.answer_positions() if options.tokens == "answer" else None
    counted = batch.tokens if positions is None else batch.answer_tokens
    scale = _FLOAT16_LOSS_SCALE if _is_float16(mask.model) else 1.0
    while True:
        gradient, losses = _mask_gradients(mask, batch, positions, scale, objective)
        if scale == 1.0 or bool(gradient.isfinite().all()) or not bool(losses.isfinite().all()):
            return gradient, counted.to(gradient), losses
        # The scaled gradients left float16's range; smaller ones may not.
        scale /= 32


def _mask_gradients(
    mask: ChannelMask,
    batch: Batch,
    positions: torch.Tensor | None,
    scale: float,
    objective: Objective,
) -> tuple[torch.Tensor, torch.Tensor]:
    with torch.enable_grad(), mask.per_example(batch.size, batch.length, positions) as leaves:
        losses = objective(mask.model, batch)
        # The sum keeps the examples apart: each leaf row receives its own example's gradient.
        (losses.sum() * scale).backward()  # type: ignore[no-untyped-call]
    found = [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in leaves]
    gradient = torch.cat([part.to(mask.home) for part in found], dim=1)
    if scale != 1.0:
        gradient /= scale
    return gradient, losses.detach()


def _is_float16(model: PreTrainedModel) -> bool:
    return bool(next(model.parameters()).dtype == torch.float16)
