"""Candidate ranking: which of several answers a model finds most likely."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfrnet.data.examples import Encoded, Example, Truncation, encode, longest_choice
from tfrnet.data.items import Question
from tfrnet.models.likelihood import score_answers

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class Ranking:
    """The choices of a question with the summed log-likelihood of each.

    `unconditional` are the log-likelihoods after an empty prompt, if they were requested.
    """

    log_likelihoods: tuple[float, ...]
    gold: int
    choices: tuple[str, ...] = ()
    unconditional: tuple[float, ...] = ()

    @property
    def chosen(self) -> int:
        """The choice with the highest log-likelihood; the first if several tie."""
        return _first_highest(self.log_likelihoods)

    @property
    def chosen_norm(self) -> int:
        """The choice with the highest log-likelihood per character, without the leading space."""
        return self._highest_per(map(len, self.choices))

    @property
    def chosen_bytes(self) -> int:
        """The choice with the highest log-likelihood per UTF-8 byte."""
        return self._highest_per(len(choice.encode()) for choice in self.choices)

    @property
    def chosen_mutual_info(self) -> int:
        """The choice whose log-likelihood is raised most by the prompt."""
        pairs = zip(self.log_likelihoods, self.unconditional, strict=True)
        return _first_highest([total - unasked for total, unasked in pairs])

    def _highest_per(self, lengths: Iterable[int]) -> int:
        pairs = zip(self.log_likelihoods, lengths, strict=True)
        return _first_highest([total / length for total, length in pairs])

    @property
    def correct(self) -> bool:
        """Whether the right answer was chosen."""
        return self.chosen == self.gold

    @property
    def correct_norm(self) -> bool:
        """Whether the right answer was chosen by likelihood per character."""
        return self.chosen_norm == self.gold

    @property
    def margin(self) -> float:
        """How far the right answer's log-likelihood is above the best wrong one's."""
        wrong = [ll for i, ll in enumerate(self.log_likelihoods) if i != self.gold]
        return self.log_likelihoods[self.gold] - max(wrong)


def _first_highest(values: Sequence[float]) -> int:
    return max(range(len(values)), key=values.__getitem__)


def encode_choices(
    question: Question,
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    label: str,
    truncation: Truncation = "passage_left",
) -> list[Encoded]:
    """Encode a question with each of its choices; too long a prompt is cut alike for all."""
    longest = longest_choice(question.prompt, question.choices, tokenizer)
    return [
        encode(
            Example(question.prompt, choice),
            tokenizer,
            max_length,
            label,
            truncation,
            question.passage,
            longest,
        )
        for choice in question.choices
    ]


def rank(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    questions: Sequence[Question],
    batch_size: int = 16,
    max_length: int = 256,
    truncation: Truncation = "passage_left",
) -> list[Ranking]:
    """Rank the choices of every question."""
    groups = [
        encode_choices(question, tokenizer, max_length, f"question {number}", truncation)
        for number, question in enumerate(questions, start=1)
    ]
    scores = score_answers(model, groups, batch_size)
    return [
        Ranking(
            tuple(answer.total for answer in answers),
            question.gold,
            question.choices,
        )
        for question, answers in zip(questions, scores, strict=True)
    ]


def accuracy(rankings: Sequence[Ranking]) -> float:
    """Return the share of right choices, in percent."""
    return 100 * sum(ranking.correct for ranking in rankings) / len(rankings)
