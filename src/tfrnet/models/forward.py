"""The forward pass: losses of answer tokens; logits are computed for those positions only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from tfrnet.core.team import SOLO, Team, Tensors
from tfrnet.data.batches import batches
from tfrnet.data.examples import Encoded
from tfrnet.models.padding import PaddingSide, padded
from tfrnet.models.parts import in_parts
from tfrnet.models.prompts import rows_answer

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Batch:
    """Padded examples and the positions whose next token is an answer token.

    An example's last token is only predicted, so it is a target but not an input. `rows` and
    `columns` are the predicting positions, `targets` the answer tokens predicted there.
    `answer_tokens` and `tokens` are counts per example. Shapes: [B, N], [B, N], then [T], then
    [B]. `prompts` are the ids before each answer.
    """

    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    rows: torch.Tensor
    columns: torch.Tensor
    targets: torch.Tensor
    answer_tokens: torch.Tensor
    tokens: torch.Tensor
    padding_side: PaddingSide
    prompts: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        """Number of examples."""
        return self.input_ids.shape[0]

    @property
    def length(self) -> int:
        """Length of the longest input, in tokens."""
        return self.input_ids.shape[1]

    def answer_positions(self) -> torch.Tensor:
        """Return 1 where an answer token is predicted, 0 elsewhere. Shape [B, N]."""
        positions = torch.zeros_like(self.attention_mask)
        positions[self.rows, self.columns] = 1
        return positions


def collate(
    examples: Sequence[Encoded], device: torch.device, padding_side: PaddingSide = "right"
) -> Batch:
    """Pad examples to one length."""
    ids, attention = padded([example.ids[:-1] for example in examples], padding_side)
    rows: list[int] = []
    columns: list[int] = []
    targets: list[int] = []
    for row, example in enumerate(examples):
        first = ids.shape[1] - len(example.ids) + 1 if padding_side == "left" else 0
        for position in range(example.answer_start, len(example.ids)):
            rows.append(row)
            columns.append(first + position - 1)
            targets.append(example.ids[position])
    return Batch(
        ids.to(device),
        attention.to(device),
        torch.tensor(rows, device=device),
        torch.tensor(columns, device=device),
        torch.tensor(targets, device=device),
        torch.tensor([example.answer_length for example in examples], device=device),
        torch.tensor([len(example.ids) for example in examples], device=device),
        padding_side,
        tuple(example.ids[: example.answer_start] for example in examples),
    )


def input_device(model: PreTrainedModel) -> torch.device:
    """Return the device of a model's input, also for a model on several devices."""
    device: torch.device = model.get_input_embeddings().weight.device
    return device if device.type != "meta" else torch.device("cpu")


def is_stateful(model: PreTrainedModel) -> bool:
    """Tell whether a model has a recurrent state.

    It cannot continue a shared prefix, and may read padding before a text as part of it.
    """
    return bool(getattr(model, "_is_stateful", False))


def fitting_length(model: PreTrainedModel, wanted: int) -> int:
    """Return the length of examples that is wanted, or the model's own limit if that is less."""
    limit: int | None = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return min(wanted, limit or wanted)


@contextmanager
def frozen(model: PreTrainedModel) -> Iterator[None]:
    """Freeze all weights and turn off dropout within a `with` block.

    Existing gradients are set aside, so that nothing is added to them, and put back at the end.
    """
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    gradients = [(p, p.grad) for p in model.parameters() if p.grad is not None]
    modes = {module: module.training for module in model.modules()}
    for parameter, _ in gradients:
        parameter.grad = None
    for parameter in trainable:
        parameter.requires_grad_(False)
    model.eval()
    try:
        yield
    finally:
        for parameter in trainable:
            parameter.requires_grad_(True)
        for parameter, gradient in gradients:
            parameter.grad = gradient
        for module, training in modes.items():
            module.training = training


@contextmanager
def head_sees_only(
    model: PreTrainedModel, rows: torch.Tensor, columns: torch.Tensor
) -> Iterator[None]:
    """Pass only the given positions to the LM head, as one row: logits are [1, T, vocabulary]."""
    head: nn.Module = model.get_output_embeddings()

    def pick(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        hidden = inputs[0]
        picked = hidden[rows.to(hidden.device), columns.to(hidden.device)].unsqueeze(0)
        return (picked, *inputs[1:])

    handle = head.register_forward_pre_hook(pick)
    try:
        yield
    finally:
        handle.remove()


def answer_logits(model: PreTrainedModel, batch: Batch) -> torch.Tensor:
    """Return the logits at the positions that predict an answer token. [T, V], float32 or wider.

    The answer tokens themselves are in `batch.targets`.
    """
    extra: dict[str, Any] = {}
    if batch.padding_side == "left":
        extra["position_ids"] = (batch.attention_mask.cumsum(1) - 1).clamp(min=0)
    with head_sees_only(model, batch.rows, batch.columns), rows_answer(batch.prompts):
        logits: torch.Tensor = model(
            input_ids=batch.input_ids,
            attention_mask=batch.attention_mask,
            use_cache=False,
            **extra,
        ).logits[0]
    return at_least_float32(logits)


def at_least_float32(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in float32; float64 is left as it is."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def token_losses(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the negative log-likelihood of every answer token. [T, V], [T] -> [T]."""
    wide = at_least_float32(logits)
    # A model on several devices may return its output on another device than its input.
    return nn.functional.cross_entropy(wide, targets.to(wide.device), reduction="none")


def sum_by_example(values: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Sum a value per answer token over each example. [T] -> [B]."""
    sums = torch.zeros(batch.size, dtype=values.dtype, device=values.device)
    return sums.index_add(0, batch.rows.to(values.device), values)


def mean_by_example(values: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Average a value per answer token over each example. [T] -> [B]."""
    return sum_by_example(values, batch) / batch.answer_tokens.to(values.device)


def answer_losses(model: PreTrainedModel, batch: Batch) -> torch.Tensor:
    """Return L(x) of each example: the mean negative log-likelihood of its answer tokens. [B]."""
    return mean_by_example(token_losses(answer_logits(model, batch), batch.targets), batch)


@dataclass(frozen=True)
class Answers:
    """Of many examples: their losses, and whether greedy decoding gives exactly the answer."""

    losses: torch.Tensor
    given: torch.Tensor

    def part(self, start: int, end: int) -> Answers:
        """Return those of some of the examples."""
        return Answers(self.losses[start:end], self.given[start:end])


@torch.no_grad()
def evaluate_losses(
    model: PreTrainedModel,
    examples: Sequence[Encoded],
    batch_size: int,
    max_tokens: int | None = None,
    team: Team = SOLO,
    overhead: int | None = None,
) -> torch.Tensor:
    """Return L(x) of many examples, in their order, on the CPU."""
    return _evaluate(answer_losses, model, examples, batch_size, max_tokens, team, overhead)


@torch.no_grad()
def evaluate_answers(
    model: PreTrainedModel,
    examples: Sequence[Encoded],
    batch_size: int,
    max_tokens: int | None = None,
    team: Team = SOLO,
    overhead: int | None = None,
) -> Answers:
    """Return losses and whether the model gives the answers, without decoding; at least one.

    Greedy decoding gives an answer if each of its tokens is the likeliest after those before it.
    """
    found = _evaluate(_losses_and_given, model, examples, batch_size, max_tokens, team, overhead)
    return Answers(found[..., 0], found[..., 1] > 0)


def _losses_and_given(model: PreTrainedModel, batch: Batch) -> torch.Tensor:
    logits = answer_logits(model, batch)
    losses = mean_by_example(token_losses(logits, batch.targets), batch)
    missed = sum_by_example((logits.argmax(-1) != batch.targets.to(logits.device)).float(), batch)
    return torch.stack([losses.float(), (missed == 0).float()], dim=-1)


def _evaluate(
    of_batch: Callable[[PreTrainedModel, Batch], torch.Tensor],
    model: PreTrainedModel,
    examples: Sequence[Encoded],
    batch_size: int,
    max_tokens: int | None,
    team: Team,
    overhead: int | None,
) -> torch.Tensor:
    """Return the values of many examples, in their order, on the CPU."""
    device = input_device(model)
    groups = batches(examples, batch_size, max_tokens=max_tokens, overhead=overhead)

    def values_of(part: list[int]) -> torch.Tensor:
        return of_batch(model, collate([examples[i] for i in part], device)).float()

    def work(group: list[int]) -> Tensors:
        return (torch.cat(in_parts(group, values_of, whole=team.in_lockstep)),)

    found = [values.cpu() for (values,) in team.map(groups, work)]
    if not found:
        return torch.empty(0)
    order = torch.tensor([i for group in groups for i in group]).argsort()
    return torch.cat(found)[order]
