"""The retain examples most similar to a request, by the model's hidden states of the prompts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from tfrnet.core.team import Tensors
from tfrnet.data.examples import Encoded
from tfrnet.methods.tfr.scoring import ScoreOptions
from tfrnet.models.forward import Batch, collate, frozen, input_device
from tfrnet.models.layers import decoder_layers, hidden_after_each
from tfrnet.models.parts import in_parts

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@torch.no_grad()
def prompt_states(
    model: PreTrainedModel, examples: Sequence[Encoded], options: ScoreOptions
) -> torch.Tensor:
    """Return the middle layer's output where each answer begins, on the CPU. [n, D].

    A passage has no prompt, so that its mean over the whole text stands for it. The first token is
    left out: in many models its state is huge, whatever the text.
    """
    middle, whole = _middle_layer(model), options.team.in_lockstep
    prompts = [
        Encoded(each.ids, 2) if each.is_passage else _prompt_alone(each) for each in examples
    ]

    def states_of(batch: Batch) -> Tensors:
        (states,) = hidden_after_each(
            model, [middle], batch.input_ids, batch.attention_mask, to_the_end=whole
        )
        return (_where_answers_are_predicted(states, batch),)

    (states,) = of_all(model, prompts, options, states_of)
    return states


def _middle_layer(model: PreTrainedModel) -> nn.Module:
    layers = decoder_layers(model)
    return layers[(len(layers) - 1) // 2]


def _prompt_alone(example: Encoded) -> Encoded:
    # What follows does not change the state at its end, where the first token is predicted.
    return Encoded(example.ids[: example.answer_start + 1], example.answer_start)


def _where_answers_are_predicted(states: torch.Tensor, batch: Batch) -> torch.Tensor:
    rows = states.float().cpu()[batch.rows.cpu(), batch.columns.cpu()]
    return torch.stack([part.mean(0) for part in torch.split(rows, batch.answer_tokens.tolist())])


def of_all(
    model: PreTrainedModel,
    examples: Sequence[Encoded],
    options: ScoreOptions,
    of_batch: Callable[[Batch], Tensors],
) -> Tensors:
    """Return what a batch's function says of all examples, in their order, on the CPU."""
    device, team = input_device(model), options.team

    def of_part(part: list[int]) -> Tensors:
        return of_batch(collate([examples[i] for i in part], device))

    def work(group: list[int]) -> Tensors:
        parts = in_parts(group, of_part, whole=team.in_lockstep)
        return tuple(map(torch.cat, zip(*parts, strict=True)))

    groups = options.groups(examples)
    with frozen(model):
        found = list(team.map(groups, work))
    order = torch.tensor([i for group in groups for i in group]).argsort()
    return tuple(
        torch.cat([each.cpu() for each in results])[order] for results in zip(*found, strict=True)
    )


def likeness(
    asked: torch.Tensor, known: torch.Tensor, middle: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the cosine similarity of states [n, D] and [m, D]. [n, m].

    They are centred on `middle` [D], or else on the mean of the latter.
    """
    middle = known.mean(0) if middle is None else middle
    rows = torch.nn.functional.normalize(asked - middle, dim=1)
    return rows @ torch.nn.functional.normalize(known - middle, dim=1).T


def ranked(cosines: torch.Tensor) -> torch.Tensor:
    """Return the columns of each row, nearest first. [n, m]."""
    return cosines.argsort(dim=1, descending=True, stable=True)


def nearest_to_any(cosines: torch.Tensor, count: int) -> list[int]:
    """Return `count` columns: each row's nearest first, then each row's second, and so on."""
    # Ordered by a column's best rank in any row.
    turns = dict.fromkeys(ranked(cosines).T.flatten().tolist())
    return list(turns)[:count]
