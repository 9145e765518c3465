"""The retain examples most similar to a request, by the model's hidden states of the prompts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from tfrnet.core.team import Tensors
from tfrnet.data.examples import Encoded
from tfrnet.methods.tfr.scoring import ScoreOptions
from tfrnet.models.forward import collate, frozen, input_device
from tfrnet.models.layers import decoder_layers, hidden_after_each
from tfrnet.models.parts import in_parts

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@torch.no_grad()
def prompt_states(
    model: PreTrainedModel, examples: Sequence[Encoded], options: ScoreOptions
) -> torch.Tensor:
    """Return the middle layer's output where each answer begins, on the CPU. [n, D]."""
    layers, device, team = decoder_layers(model), input_device(model), options.team
    middle = layers[(len(layers) - 1) // 2]

    def states_of(part: list[int]) -> torch.Tensor:
        batch = collate([examples[i] for i in part], device)
        (states,) = hidden_after_each(
            model, [middle], batch.input_ids, batch.attention_mask, to_the_end=team.in_lockstep
        )
        ends = torch.tensor([examples[i].answer_start - 1 for i in part])
        return states.float().cpu()[torch.arange(len(part)), ends]

    def work(group: list[int]) -> Tensors:
        return (torch.cat(in_parts(group, states_of, whole=team.in_lockstep)),)

    groups = options.groups(examples)
    with frozen(model):
        found = [states.cpu() for (states,) in team.map(groups, work)]
    places = torch.tensor([i for group in groups for i in group])
    return torch.cat(found)[places.argsort()]


def likeness(asked: torch.Tensor, known: torch.Tensor) -> torch.Tensor:
    """Return the cosine similarity of states [n, D] and [m, D], centred on the latter. [n, m]."""
    middle = known.mean(0)
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
