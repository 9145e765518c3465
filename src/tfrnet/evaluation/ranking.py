"""Candidate ranking: which of several answers a model finds most likely."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfrnet.data.examples import Encoded, Example, encode
from tfrnet.models.forward import evaluate_losses

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class Question:
    """A prompt with its possible answers; `choices[gold]` is right."""

    prompt: str
    choices: tuple[str, ...]
    gold: int = 0


@dataclass(frozen=True)
class Ranking:
    """The summed log-likelihood of each choice, and the one that is highest (first of equals)."""

    log_likelihoods: tuple[float, ...]
    gold: int

    @property
    def chosen(self) -> int:
        """The choice of the highest log-likelihood."""
        return max(range(len(self.log_likelihoods)), key=self.log_likelihoods.__getitem__)

    @property
    def correct(self) -> bool:
        """Whether the right answer was chosen."""
        return self.chosen == self.gold


def rank(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    questions: Sequence[Question],
    batch_size: int = 16,
    max_length: int = 256,
) -> list[Ranking]:
    """Rank the choices of every question."""
    rows: list[Encoded] = []
    for number, question in enumerate(questions, start=1):
        for choice in question.choices:
            example = Example(question.prompt, choice)
            rows.append(encode(example, tokenizer, max_length, f"question {number}"))
    losses = evaluate_losses(model, rows, batch_size).tolist()
    sums = iter([-loss * row.answer_length for loss, row in zip(losses, rows, strict=True)])
    return [
        Ranking(tuple(next(sums) for _ in question.choices), question.gold)
        for question in questions
    ]


def accuracy(rankings: Sequence[Ranking]) -> float:
    """Return the share of right choices, in percent."""
    return 100 * sum(ranking.correct for ranking in rankings) / len(rankings)
