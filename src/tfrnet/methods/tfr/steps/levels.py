"""How likely an answer should be when the model does not know it: as likely as other answers.

Beyond the paper. The other answers are wrong ones that the example names, or else those of retain
examples with a similar prompt. If the latter consist of a few symbols (yes and no, digits), an
answer is unknown when its weakest token is no more likely than a guess; of a long number, which
could be read off the other digits, when its digits are so on average. Otherwise it is unknown when
it is no more likely, per token, than the other answers to the same prompt.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from tfrnet.data.examples import Encoded, tokens_apart, with_answer
from tfrnet.methods.tfr.scoring import ScoreOptions
from tfrnet.methods.tfr.steps.margins import SMALLEST_LOSS, log_odds
from tfrnet.methods.tfr.steps.neighbours import of_all
from tfrnet.models.forward import Batch, answer_logits, mean_by_example, token_losses

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# The number of nearest retain examples that show what an answer looks like.
SHOWN = 48
# The most distinct tokens for answers to count as written in symbols.
_SYMBOLS = 16
# The most other answers that one is compared with.
_RIVALS = 16
# Log-odds of a guess among symbols; for a label, those of chance if higher.
_GUESS = -1.0

# A prompt and an answer, which identify an example.
Key = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class Form:
    """What answers to similar prompts look like: a set of symbols, or whole answers as rivals.

    `named` are the prompt with wrong answers that the example itself names; they take the place of
    rivals. Where every digit of an answer counts, `digits` are the symbols that are digits, and
    `start` is what most other answers begin with too: its digits are no secret. Of a passage only
    the tokens at the places `by_heart` count.
    """

    symbols: tuple[int, ...]
    rivals: tuple[tuple[int, ...], ...] = ()
    named: tuple[Encoded, ...] = ()
    digits: tuple[int, ...] = ()
    start: tuple[int, ...] = ()
    by_heart: tuple[int, ...] = ()

    def counted(self, answer: Sequence[int]) -> list[int]:
        """Return the places of the digits that count; none where only the weakest symbol does."""
        known = len(self.start) if tuple(answer[: len(self.start)]) == self.start else 0
        return [place for place in range(known, len(answer)) if answer[place] in self.digits]


@dataclass(frozen=True)
class Goal:
    """The form of an example's answer, and the log-odds at which it counts as unknown."""

    form: Form
    level: float


def form_of(example: Encoded, nearest: Sequence[Encoded], rivals: int = _RIVALS) -> Form:
    """Return the form of an example's answer, given retained examples, the nearest first."""
    own, shown = answer_of(example), [answer_of(other) for other in nearest[:SHOWN]]
    # The majority of the nearest decides.
    counts = Counter(token for answer in shown for token in set(answer))
    symbols = {token for token, times in counts.items() if times > 1} | set(own)
    covered = sum(set(answer) <= symbols for answer in shown)
    if 1 < len(symbols) <= _SYMBOLS and covered > len(shown) / 2:
        return Form(tuple(sorted(symbols)))
    return Form((), rivals_of(example, nearest, rivals))


def rivals_of(
    example: Encoded, nearest: Sequence[Encoded], rivals: int = _RIVALS
) -> tuple[tuple[int, ...], ...]:
    """Return other answers of about the same length, those of the nearest examples first."""
    own = answer_of(example)
    others = [other for other in dict.fromkeys(map(answer_of, nearest)) if other != own]
    alike = [other for other in others if len(own) <= 2 * len(other) <= 4 * len(own)]
    return tuple((alike or others)[:rivals])


def with_rivals(form: Form, example: Encoded, answers: Sequence[tuple[int, ...]]) -> Form:
    """Return a form whose rivals begin with the given answers."""
    own = answer_of(example)
    first = [answer for answer in answers if answer != own]
    return Form(form.symbols, tuple(dict.fromkeys([*first, *form.rivals]))[:_RIVALS])


def with_wrong_answers(
    forms: Sequence[Form], examples: Sequence[Encoded], wrong: Sequence[Sequence[Encoded]]
) -> list[Form]:
    """Return the forms, with the wrong answers that an example names in the place of its rivals.

    What is in symbols stays so, and so does the form of an example that names none.
    """
    found = []
    for form, example, named in zip(forms, examples, wrong, strict=True):
        others = tokens_apart(dict.fromkeys(named), [example])
        found.append(
            Form((), named=tuple(others[:_RIVALS])) if others and not form.symbols else form
        )
    return found


def rival_examples(example: Encoded, form: Form, max_length: int, bos: int | None) -> list[Encoded]:
    """Return the example's prompt with each of the other answers, cut to the maximum length."""
    if form.named:
        return list(form.named)
    return [with_answer(example, rival, max_length, bos) for rival in form.rivals]


def level_of(form: Form, rival_losses: Sequence[float], quantile: float) -> float:
    """Return the log-odds at which an answer of this form counts as unknown.

    `quantile` 0 compares it with the most likely rival, 0.5 with the median one, as always where
    the rivals are named.
    """
    if form.digits:
        # By chance: where numbers of people that the model never saw are too.
        return -math.log(len(form.digits) - 1)
    if form.symbols:
        return max(_GUESS, -math.log(len(form.symbols) - 1))
    if not rival_losses:
        return _GUESS
    # Of answers to other prompts only the likelier ones make sense here; of named ones all do.
    loss = float(torch.tensor(rival_losses).quantile(0.5 if form.named else quantile))
    return float(log_odds(torch.tensor(loss)))


class AnswerOdds:
    """The objective that calibrated steps lower: the log-odds of every answer of a request.

    For symbols they are taken at the weakest token, among the symbols, or at every digit, among the
    digits; otherwise per token, of a passage per token that is known by heart.
    """

    def __init__(self, goals: Mapping[Key, Goal]) -> None:
        self._goals = goals

    def targets(self, examples: Sequence[Encoded]) -> torch.Tensor:
        """Return the log-odds at which each answer is unknown. [B]."""
        return torch.tensor([self._goals[key_of(example)].level for example in examples])

    def in_words(self, examples: Sequence[Encoded]) -> list[Encoded]:
        """Return the examples whose answers are not symbols."""
        return [each for each in examples if not self._goals[key_of(each)].form.symbols]

    def values(self, model: PreTrainedModel, batch: Batch) -> torch.Tensor:
        """Return the log-odds of each answer. [B]."""
        logits = answer_logits(model, batch)
        losses = token_losses(logits, batch.targets)
        means = mean_by_example(losses, batch)
        answers, parts, by_token = (
            torch.split(each, batch.answer_tokens.tolist())
            for each in (batch.targets.cpu(), logits, losses)
        )
        found = []
        for prompt, answer, part, own, mean in zip(
            batch.prompts, answers, parts, by_token, means, strict=True
        ):
            form = self._goals[prompt, tuple(answer.tolist())].form
            if form.symbols:
                found.append(symbol_odds(part, answer, form))
            else:
                found.append(odds_of(own[list(form.by_heart)].mean() if form.by_heart else mean))
        return torch.stack(found)

    @torch.no_grad()
    def measured(
        self, model: PreTrainedModel, examples: Sequence[Encoded], options: ScoreOptions
    ) -> torch.Tensor:
        """Return the log-odds of the answers of any number of examples, on the CPU. [n]."""
        (found,) = of_all(
            model, examples, options, lambda batch: (self.values(model, batch).float(),)
        )
        return found


def symbol_odds(logits: torch.Tensor, answer: torch.Tensor, form: Form) -> torch.Tensor:
    """Return the log-odds of an answer in symbols, given the logits at its tokens."""
    if places := form.counted(answer.tolist()):
        return typical_odds(logits[places], answer[places], form.digits)
    return weakest_odds(logits, answer, form.symbols)


def weakest_odds(
    logits: torch.Tensor, answer: torch.Tensor, symbols: Sequence[int]
) -> torch.Tensor:
    """Return the log-odds among symbols of the weakest token, smoothly: -log mean exp(-odds)."""
    odds = _odds_among(logits, answer, symbols)
    return -((-odds).logsumexp(0) - torch.tensor(float(len(answer))).log())


def typical_odds(
    logits: torch.Tensor, answer: torch.Tensor, symbols: Sequence[int]
) -> torch.Tensor:
    """Return the log-odds among symbols of p, where 1 - p is the geometric mean of all tokens'.

    A token weighs as much as it is likely: all that are known pull alike, however sure, and one
    that is a guess already gains nothing by falling further.
    """
    losses: torch.Tensor = torch.nn.functional.softplus(_odds_among(logits, answer, symbols))
    return -odds_of(losses.mean())


def _odds_among(logits: torch.Tensor, answer: torch.Tensor, symbols: Sequence[int]) -> torch.Tensor:
    own = answer.to(logits.device).unsqueeze(1)
    among = torch.tensor(symbols, device=logits.device)
    others = logits[:, among].masked_fill(among == own, -torch.inf).logsumexp(1)
    return logits.gather(1, own).squeeze(1) - others


def odds_of(losses: torch.Tensor) -> torch.Tensor:
    """Return log(p / (1 - p)) for p = exp(-loss), also for large losses."""
    losses = losses.clamp(min=SMALLEST_LOSS)
    return -(losses + torch.log(-torch.expm1(-losses)))


def answer_of(example: Encoded) -> tuple[int, ...]:
    """Return the tokens of an example's answer."""
    return example.ids[example.answer_start :]


def prompt_of(example: Encoded) -> tuple[int, ...]:
    """Return the tokens of an example's prompt."""
    return example.ids[: example.answer_start]


def key_of(example: Encoded) -> Key:
    """Return the key of an example."""
    return prompt_of(example), answer_of(example)
