"""How far an answer is ahead of what the model would say instead."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

import torch

from tfrnet.data.examples import Encoded
from tfrnet.models.forward import Batch, answer_logits, mean_by_example

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Rivals:
    """The rivals of every answer token: the likeliest others that retained answers hold too.

    Rivals are found when an example is first seen and stay the same while the mask moves, so an
    answer gives way to another answer, and not to whatever token a damaged model happens to say.
    """

    def __init__(self, allowed: Collection[int], count: int = 1) -> None:
        """Let rivals be among the `allowed` tokens; any token may be one where they are too few."""
        self._allowed = torch.tensor(sorted(allowed)) if len(allowed) > 1 else None
        # The answer's own token may be among the allowed ones.
        self._count = count if self._allowed is None else min(count, len(self._allowed) - 1)
        self._known: dict[object, torch.Tensor] = {}

    def weakest_margins(self, model: PreTrainedModel, batch: Batch) -> torch.Tensor:
        """Return how far each answer is ahead of its first rival at its weakest token. [B].

        Below 0 the model would say something else. It is smooth: -log mean exp(-margin).
        """
        margins = self._token_margins(model, batch, 1)
        lowest = torch.full((batch.size,), torch.inf, device=margins.device, dtype=margins.dtype)
        rows = batch.rows.to(margins.device)
        lowest = lowest.scatter_reduce(0, rows, margins.detach(), "amin")
        return lowest - mean_by_example(torch.exp(lowest[rows] - margins), batch).log()

    def mean_margins(self, model: PreTrainedModel, batch: Batch) -> torch.Tensor:
        """Return how far each answer's tokens are ahead of all rivals, on average. [B]."""
        return mean_by_example(self._token_margins(model, batch, self._count), batch)

    def _token_margins(self, model: PreTrainedModel, batch: Batch, count: int) -> torch.Tensor:
        """Return the logit of every answer token less the mean of its first rivals'. [T]."""
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
        rivals = torch.cat([self._known[key] for key in keys])[:, :count]
        return logits.gather(1, targets).squeeze(1) - logits.gather(1, rivals).mean(1)

    def _likeliest(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the likeliest other tokens at every position, the first first. [T, count]."""
        others = logits.scatter(1, targets, -torch.inf)
        if self._allowed is not None:
            barred = torch.ones(logits.shape[1], dtype=torch.bool, device=logits.device)
            barred[self._allowed.to(logits.device)] = False
            others[:, barred] = -torch.inf
        return others.topk(min(self._count, others.shape[1] - 1), dim=1).indices


def answer_tokens(examples: Iterable[Encoded]) -> set[int]:
    """Return the tokens that the examples' answers hold."""
    return {token for example in examples for token in _answer(example)}


def without_depth(
    forget: Sequence[Encoded], retain: Iterable[Encoded], deep_single: bool
) -> torch.Tensor:
    """Return whose answer is one token and has no deeper to go. [B].

    With `deep_single` those alone that retained examples give too: of a few answers that all share,
    such as yes and no, another wins as soon as this one is behind it.
    """
    shared = {_answer(example) for example in retain} if deep_single else set()
    return torch.tensor(
        [e.answer_length == 1 and (not deep_single or _answer(e) in shared) for e in forget]
    )


def _answer(example: Encoded) -> tuple[int, ...]:
    return example.ids[example.answer_start :]
