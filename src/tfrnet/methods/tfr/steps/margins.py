"""How sure the model is of an answer: its margin over rivals, and its log-odds.

A memorised answer has a loss near 0, so its gradient vanishes although many channels still hold it.
Margins and log-odds do not saturate: the log-odds fall by the same amount whether the probability
goes from 0.9999 to 0.999 or from 0.9 to 0.5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import torch

from tfrnet.data.examples import Encoded
from tfrnet.models.forward import Batch, answer_logits, mean_by_example

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Smaller losses are rounding errors; here the log-odds are 13.8.
SMALLEST_LOSS = 1e-6
# From here on the log-odds are the negative loss to the last bit; at 89, exp overflows.
_LARGE_LOSS = 80.0


class Rivals:
    """The rivals of every answer token: the most likely other tokens that occur in retain answers.

    Rivals are fixed when an example is first seen, so an answer gives way to another answer and not
    to whatever token a damaged model happens to prefer.
    """

    def __init__(
        self, allowed: Collection[int], count: int = 1, labels: Collection[int] = ()
    ) -> None:
        """Choose rivals among the `allowed` tokens, or among all if these are too few.

        The rivals of an answer that is one of the `labels` are the other labels.
        """
        self._allowed = torch.tensor(sorted(allowed)) if len(allowed) > 1 else None
        self._labels = torch.tensor(sorted(labels)) if len(labels) > 1 else None
        # The answer's own token may be among the allowed ones.
        self._count = count if self._allowed is None else min(count, len(self._allowed) - 1)
        self._known: dict[object, torch.Tensor] = {}

    def weakest_margins(self, model: PreTrainedModel, batch: Batch) -> torch.Tensor:
        """Return how far each answer is ahead of its first rival at its weakest token. [B].

        Below 0 the model would say something else. The minimum is smoothed: -log mean exp(-margin).
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
        # Per example, not per batch: batches may be cut differently later.
        answers = torch.split(batch.targets.cpu(), batch.answer_tokens.tolist())
        keys = [
            (prompt, *answer.tolist())
            for prompt, answer in zip(batch.prompts, answers, strict=True)
        ]
        if not all(key in self._known for key in keys):
            whole = torch.repeat_interleave(batch.answer_tokens == 1, batch.answer_tokens)
            found = self._likeliest(logits.detach(), targets, whole.to(logits.device))
            for key, own in zip(
                keys, torch.split(found, batch.answer_tokens.tolist()), strict=True
            ):
                self._known.setdefault(key, own)
        rivals = torch.cat([self._known[key] for key in keys])[:, :count]
        return logits.gather(1, targets).squeeze(1) - logits.gather(1, rivals).mean(1)

    def _likeliest(
        self, logits: torch.Tensor, targets: torch.Tensor, whole: torch.Tensor
    ) -> torch.Tensor:
        """Return the most likely other tokens at every position, in descending order. [T, count].

        `whole` [T] marks tokens that are an answer by themselves. If there are too few others, the
        first is repeated.
        """
        others = logits.scatter(1, targets, -torch.inf)
        if self._allowed is not None:
            others[:, _all_but(self._allowed, logits)] = -torch.inf
        if self._labels is not None:
            labels = self._labels.to(logits.device)
            rows = whole & torch.isin(targets.squeeze(1), labels)
            among = logits[rows].scatter(1, targets[rows], -torch.inf)
            among[:, _all_but(labels, logits)] = -torch.inf
            others[rows] = among
        best = others.topk(min(self._count, others.shape[1] - 1), dim=1)
        return torch.where(best.values.isneginf(), best.indices[:, :1], best.indices)


def answer_tokens(examples: Iterable[Encoded]) -> set[int]:
    """Return the tokens that occur in the examples' answers."""
    return {token for example in examples for token in _answer(example)}


def label_tokens(examples: Iterable[Encoded]) -> set[int]:
    """Return the one-token answers that several examples share: yes and no, or class names."""
    answers = Counter(_answer(example) for example in examples)
    return {answer[0] for answer, times in answers.items() if len(answer) == 1 and times > 1}


def without_depth(forget: Iterable[Encoded], labels: Collection[int] | None) -> torch.Tensor:
    """Return which examples skip `deep_margin`: labels, or without `labels` one-token answers. [B].

    A label behind the next label is wrong already; another word may still be ahead of all but one.
    """
    return torch.tensor(
        [
            example.answer_length == 1 and (labels is None or _answer(example)[0] in labels)
            for example in forget
        ]
    )


def _answer(example: Encoded) -> tuple[int, ...]:
    return example.ids[example.answer_start :]


def _all_but(tokens: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """Return which of the vocabulary's tokens are not among the given ones. [V]."""
    others = torch.ones(logits.shape[1], dtype=torch.bool, device=logits.device)
    others[tokens.to(logits.device)] = False
    return others


def log_odds(losses: torch.Tensor) -> torch.Tensor:
    """Return log(p / (1 - p)) for p = exp(-loss), the geometric mean of the tokens' probability."""
    near = losses.clamp(SMALLEST_LOSS, _LARGE_LOSS)
    return -torch.log(torch.expm1(near)) - (losses - near).clamp(min=0)


def log_odds_gradients(gradients: torch.Tensor, losses: torch.Tensor) -> torch.Tensor:
    """Return the gradients [B, C] of the log-odds from the gradients of the losses [B]."""
    return gradients / torch.expm1(-losses.clamp(min=SMALLEST_LOSS)).unsqueeze(1)


def certainty_weights(losses: torch.Tensor, sharpness: float) -> torch.Tensor:
    """Return (1 - p)^sharpness: the weight of an example, small where the answer is certain."""
    return (-torch.expm1(-losses.clamp(min=SMALLEST_LOSS))) ** sharpness
