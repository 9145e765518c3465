"""How far an answer is ahead of what the model would say instead."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import torch

from tfrnet.data.examples import Encoded
from tfrnet.models.forward import Batch, answer_logits, mean_by_example

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Rivals:
    """The rival of every answer token: the likeliest other one that retained answers hold too.

    Rivals are found when an example is first seen and stay the same while the mask moves, so an
    answer gives way to another answer, and not to whatever token a damaged model happens to say.
    """

    def __init__(self, allowed: Collection[int]) -> None:
        """Let rivals be among the `allowed` tokens; any token may be one where they are too few."""
        self._allowed = torch.tensor(sorted(allowed)) if len(allowed) > 1 else None
        self._known: dict[object, torch.Tensor] = {}

    def weakest_margins(self, model: PreTrainedModel, batch: Batch) -> torch.Tensor:
        """Return how far each answer is ahead at its weakest token, smoothly. [B].

        Below 0 the model would say something else. It is -log mean exp(-margin).
        """
        margins = self._token_margins(model, batch)
        lowest = torch.full((batch.size,), torch.inf, device=margins.device, dtype=margins.dtype)
        rows = batch.rows.to(margins.device)
        lowest = lowest.scatter_reduce(0, rows, margins.detach(), "amin")
        return lowest - mean_by_example(torch.exp(lowest[rows] - margins), batch).log()

    def mean_margins(self, model: PreTrainedModel, batch: Batch) -> torch.Tensor:
        """Return how far the tokens of each answer are ahead on average. [B]."""
        return mean_by_example(self._token_margins(model, batch), batch)

    def _token_margins(self, model: PreTrainedModel, batch: Batch) -> torch.Tensor:
        """Return logit(token) - logit(rival) of every answer token. [T]."""
        logits = answer_logits(model, batch)
        targets = batch.targets.to(logits.device).unsqueeze(1)
        # By example, not by batch: how examples are cut into batches may change on the way.
        answers = torch.split(batch.targets.cpu(), batch.answer_tokens.tolist())
        keys = [
            (prompt, *answer.tolist())
            for prompt, answer in zip(batch.prompts, answers, strict=True)
        ]
        if not all(key in self._known for key in keys):
            found = self._likeliest(logits.detach(), targets)
            for key, own in zip(
                keys, torch.split(found, batch.answer_tokens.tolist()), strict=True
            ):
                self._known.setdefault(key, own)
        rivals = torch.cat([self._known[key] for key in keys])
        return (logits.gather(1, targets) - logits.gather(1, rivals)).squeeze(1)

    def _likeliest(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the likeliest other token at every position. [T, 1]."""
        others = logits.scatter(1, targets, -torch.inf)
        if self._allowed is not None:
            barred = torch.ones(logits.shape[1], dtype=torch.bool, device=logits.device)
            barred[self._allowed.to(logits.device)] = False
            others[:, barred] = -torch.inf
        return others.argmax(1, keepdim=True)


def answer_tokens(examples: Iterable[Encoded]) -> set[int]:
    """Return the tokens that the examples' answers hold."""
    return {token for example in examples for token in example.ids[example.answer_start :]}
