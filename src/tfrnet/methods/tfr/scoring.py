"""Channel scores: the gradient of each example's loss with respect to its own mask.

Since h = m * a, the token sum of a * dL/dh in eq. channel_score is dL(x)/dm(c). So one forward
and one backward pass over a batch, with all weights frozen, gives every score.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch

from tfrnet.core.team import SOLO, Team, Tensors
from tfrnet.data.batches import batches
from tfrnet.data.examples import Encoded
from tfrnet.masking.mask import ChannelMask
from tfrnet.models.checkpointing import can_be_checkpointed, checkpointed
from tfrnet.models.forward import (
    Batch,
    answer_losses,
    collate,
    frozen,
    input_device,
)
from tfrnet.models.padding import PaddingSide
from tfrnet.models.parts import in_parts

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# A number per example, such as its loss, from a forward pass: [B].
Objective = Callable[["PreTrainedModel", Batch], torch.Tensor]

# Keeps small gradients above float16's smallest number; divided out again in float32.
_FLOAT16_LOSS_SCALE = 1024.0


@dataclass(frozen=True)
class ScoreOptions:
    """How scoring runs. Only `tokens` changes the scores beyond rounding."""

    batch_size: int = 8
    tokens: Literal["all", "answer"] = "all"
    padding_side: PaddingSide = "right"
    gradient_checkpointing: bool = False
    max_tokens: int | None = None
    overhead: int | None = None
    team: Team = SOLO

    def groups(self, examples: Sequence[Encoded]) -> list[list[int]]:
        """Return the batches as indices of examples."""
        return batches(
            examples, self.batch_size, max_tokens=self.max_tokens, overhead=self.overhead
        )


@dataclass(frozen=True)
class ExampleGradients:
    """dL(x)/dm [B, C] and L(x) [B] of every example, on the model's device.

    L may be the loss or another objective.
    """

    gradients: torch.Tensor
    values: torch.Tensor


@dataclass(frozen=True)
class ChannelScores:
    """Means over examples of functions of dL(x)/dm(c), flat float32 over the channels.

    `magnitude` is psi of eq. channel_score; `signed` the same without the absolute value;
    `gradient` and `square` are the mean of dL/dm and of its square, without division by |T_x|;
    in `gradient` an example whose loss has reached the ceiling counts 0. `examples` is None unless
    asked for.
    """

    magnitude: torch.Tensor
    signed: torch.Tensor
    gradient: torch.Tensor
    square: torch.Tensor
    loss: float
    lowest_loss: float
    examples: ExampleGradients | None = None


@dataclass(frozen=True)
class ScoreSet:
    """Examples to be scored separately from other sets."""

    examples: Sequence[Encoded]
    ceiling: float = math.inf
    keep_examples: bool = False


def score_channels(
    mask: ChannelMask,
    examples: Sequence[Encoded],
    options: ScoreOptions,
    ceiling: float = math.inf,
    keep_examples: bool = False,
) -> ChannelScores:
    """Score every channel on the examples, under the mask that is applied now."""
    (scores,) = score_sets(mask, [ScoreSet(examples, ceiling, keep_examples)], options)
    return scores


def score_sets(
    mask: ChannelMask, sets: Sequence[ScoreSet], options: ScoreOptions
) -> list[ChannelScores]:
    """Score every channel on several sets, whose examples share passes to save time."""
    examples = [example for each in sets for example in each.examples]
    owners = torch.tensor([i for i, each in enumerate(sets) for _ in each.examples])
    groups = options.groups(examples)
    keep = any(each.keep_examples for each in sets)

    def of_part(part: list[int]) -> Tensors:
        gradients, counts, values = _part_gradients(mask, examples, part, options, answer_losses)
        owned = [(owners[part] == i).to(gradients.device) for i in range(len(sets))]
        added = torch.stack(
            [
                _added_up(gradients[own], counts[own], values[own.to(values.device)], each.ceiling)
                for each, own in zip(sets, owned, strict=True)
            ]
        )
        return (added.unsqueeze(0), values, gradients) if keep else (added.unsqueeze(0), values)

    def work(group: list[int]) -> Tensors:
        added, *others = _joined(mask, group, of_part, options)
        return added.sum(0), *others

    sums = torch.zeros(len(sets), 4, mask.index.total, dtype=mask.values.dtype, device=mask.home)
    losses = torch.empty(len(examples), dtype=torch.float64)
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []
    with _ready_to_score(mask, options):
        for group, (added, values, *gradients) in zip(
            groups, options.team.map(groups, work), strict=True
        ):
            sums += added
            losses[group] = values.double().cpu()
            kept += [(rows, values) for rows in gradients]
    each_example = _in_order(kept, groups) if keep else None
    return [
        _scores(
            sums[i], losses[owners == i], each_example if own.keep_examples else None, owners == i
        )
        for i, own in enumerate(sets)
    ]


def _scores(
    sums: torch.Tensor,
    losses: torch.Tensor,
    examples: ExampleGradients | None,
    chosen: torch.Tensor,
) -> ChannelScores:
    """Return the scores of one set from its sums, losses and, where kept, all sets' gradients."""
    magnitude, signed, gradient, square = sums / len(losses)
    if examples is not None:
        here = chosen.to(examples.gradients.device)
        examples = ExampleGradients(examples.gradients[here], examples.values[here])
    mean = math.fsum(losses.tolist()) / len(losses)
    return ChannelScores(magnitude, signed, gradient, square, mean, float(losses.min()), examples)


def _added_up(
    gradients: torch.Tensor, token_counts: torch.Tensor, losses: torch.Tensor, ceiling: float
) -> torch.Tensor:
    """Return the sums over a group's examples of the four functions of their gradients. [4, C]."""
    per_token = gradients / token_counts.unsqueeze(1)
    return torch.stack(
        [
            per_token.abs().sum(0),
            per_token.sum(0),
            gradients[(losses < ceiling).to(gradients.device)].sum(0),
            gradients.square().sum(0),
        ]
    )


def gradients_of(
    mask: ChannelMask,
    examples: Sequence[Encoded],
    options: ScoreOptions,
    objective: Objective = answer_losses,
) -> ExampleGradients:
    """Return the gradients of all examples, in order."""
    groups = options.groups(examples)

    def of_part(part: list[int]) -> Tensors:
        gradients, _, values = _part_gradients(mask, examples, part, options, objective)
        return gradients, values

    def work(group: list[int]) -> Tensors:
        return _joined(mask, group, of_part, options)

    with _ready_to_score(mask, options):
        found = [(gradients, values) for gradients, values in options.team.map(groups, work)]
    return _in_order(found, groups)


def _in_order(
    parts: Sequence[tuple[torch.Tensor, torch.Tensor]], groups: Sequence[Sequence[int]]
) -> ExampleGradients:
    """Return results of groups in the order of the examples."""
    count = sum(map(len, groups))
    first, home = parts[0][0], parts[0][0].device
    gradients = torch.empty(count, first.shape[1], dtype=first.dtype, device=home)
    values = torch.empty(count, dtype=parts[0][1].dtype, device=home)
    for group, (part, numbers) in zip(groups, parts, strict=True):
        places = torch.tensor(group, device=home)
        gradients[places], values[places] = part, numbers.to(home)
    return ExampleGradients(gradients, values)


@contextmanager
def _ready_to_score(mask: ChannelMask, options: ScoreOptions) -> Iterator[None]:
    with frozen(mask.model), checkpointed(mask.model, options.gradient_checkpointing):
        yield


def _joined(
    mask: ChannelMask,
    group: list[int],
    of_part: Callable[[list[int]], Tensors],
    options: ScoreOptions,
) -> Tensors:
    """Return a group's results, computed in as many parts as memory requires."""

    def sparing(part: list[int]) -> Tensors:
        with checkpointed(mask.model, True):
            return of_part(part)

    can_spare = not options.gradient_checkpointing and can_be_checkpointed(mask.model)
    whole = options.team.in_lockstep
    parts = in_parts(group, of_part, sparing if can_spare else None, whole)
    return parts[0] if len(parts) == 1 else tuple(map(torch.cat, zip(*parts, strict=True)))


def _part_gradients(
    mask: ChannelMask,
    examples: Sequence[Encoded],
    part: list[int],
    options: ScoreOptions,
    objective: Objective,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return dL(x)/dm [B, C], |T_x| [B] and L(x) [B] of some examples."""
    device = input_device(mask.model)
    batch = collate([examples[i] for i in part], device, options.padding_side)
    return _batch_gradients(mask, batch, options, objective)


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
        # The scaled gradients overflowed float16; with a smaller scale they may not.
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
        # Summing does not mix examples: each leaf row receives its own example's gradient.
        (losses.sum() * scale).backward()  # type: ignore[no-untyped-call]
    found = [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in leaves]
    gradient = torch.cat([part.to(mask.home) for part in found], dim=1)
    if scale != 1.0:
        gradient /= scale
    return gradient, losses.detach()


def _is_float16(model: PreTrainedModel) -> bool:
    return bool(next(model.parameters()).dtype == torch.float16)
