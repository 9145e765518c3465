"""What the model writes itself: siblings of a request, and other answers to its prompts.

Beyond the paper. Siblings are texts that begin as a prompt of the request does and go on with other
words: for "The capital of Portugal is" the model writes "The capital of France is Paris". Held in
place, they keep what is nearest to the request, of which the retain data may have nothing. Where an
answer is a number, they are the same prompt with other digits and the model's own answer. Other
answers are those that the model would give first if it did not know the right one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from tfrnet.core.team import Tensors
from tfrnet.data.examples import Encoded
from tfrnet.methods.tfr.scoring import ScoreOptions
from tfrnet.methods.tfr.steps.levels import answer_of, prompt_of
from tfrnet.methods.tfr.steps.neighbours import of_all
from tfrnet.methods.tfr.steps.symbols import digits_of, nearly_same, with_other_digits
from tfrnet.models.forward import Batch, answer_logits, fitting_length
from tfrnet.models.generation import continue_rows
from tfrnet.models.load import LoadedModel

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Ids = tuple[int, ...]

# The most tokens that are written to a text.
_LONGEST = 32
# More siblings are begun than are asked for, since those that give an answer away are left out.
_SPARE = 1.5


@dataclass(frozen=True)
class Beginning:
    """The part of a prompt before its cut, shared by `prompts` prompts.

    `tokens` are the likeliest to come next, and `size` is how many are then to be written.
    """

    ids: Ids
    tokens: Ids
    size: int
    prompts: int = 1


@dataclass(frozen=True)
class Writer:
    """Lets a model go on with texts, greedily, under the mask that is applied now."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    options: ScoreOptions

    def siblings(self, forget: Sequence[Encoded], count: int) -> list[Encoded]:
        """Return up to `count` siblings of the examples, none of which has one of their answers.

        Each prompt is cut, in its second half, where the model is least sure how to go on: mostly
        where its subject stands. There each of the likeliest tokens begins one sibling.
        """
        cut = [example for example in forget if example.answer_start > 1]
        if not cut:
            return []
        each = round(_SPARE * count / len(cut)) + 1
        beginnings = shared(self._beginnings(cut, each * len(cut)))
        starts = [
            [(*own.ids, token) for token in own.tokens[: each * own.prompts]] for own in beginnings
        ]
        texts = iter(
            self._continued(
                [start for own in starts for start in own],
                [own.size for own, begun in zip(beginnings, starts, strict=True) for _ in begun],
            )
        )
        secrets = [answer_of(example) for example in forget]
        words = [self.tokenizer.decode(secret).strip() for secret in secrets]
        written = []
        for own, begun in zip(beginnings, starts, strict=True):
            told = [(next(texts), len(start)) for start in begun]
            kept = [
                Encoded(text, start)
                for text, start in told
                if len(text) > start
                and not mentions(text, secrets)
                and not says(self.tokenizer.decode(text), words)
            ]
            # By turns, and the more often the more prompts begin so.
            written += [(turn / own.prompts, sibling) for turn, sibling in enumerate(kept)]
        written.sort(key=lambda pair: pair[0])
        return [sibling for _, sibling in written[:count]]

    def renumbered(
        self, numbers: Sequence[Encoded], request: Sequence[Encoded], count: int
    ) -> list[Encoded]:
        """Return up to `count` prompts with other digits, and the model's answers to them.

        The prompts are those of `numbers`, examples of the request whose answers are numbers. No
        prompt of the request is among them, and no answer tells one of the request's.
        """
        each = round(_SPARE * count / max(1, len(numbers))) + 1
        asked = {prompt_of(example) for example in request}
        starts: dict[Ids, int] = {}
        # By turns, so that every example has about as many.
        for turn in range(each):
            for example in numbers:
                prompt = prompt_of(example)
                other = with_other_digits(prompt, self.tokenizer, turn)
                if other and other not in asked:
                    # A sum may have a digit more.
                    starts.setdefault(other, example.answer_length + 1)
        texts = self._continued(list(starts), list(starts.values()))
        secrets = [digits_of(answer_of(example), self.tokenizer) for example in request]
        found = []
        for start, text in zip(starts, texts, strict=True):
            told = digits_of(text[len(start) :], self.tokenizer)
            if told and not any(nearly_same(told, secret) for secret in secrets):
                found.append(Encoded(text, len(start)))
        return found[:count]

    def other_answers(self, examples: Sequence[Encoded], count: int) -> list[Encoded]:
        """Return each example's prompt with `count` answers, all beginning with another token.

        They begin with the likeliest tokens and are as long as its own, or end before.
        """
        asked = [replace(each, ids=each.ids[: each.answer_start + 1]) for each in examples]

        def likeliest(batch: Batch) -> Tensors:
            logits = answer_logits(self.model, batch)
            others = logits.scatter(1, batch.targets.to(logits.device).unsqueeze(1), -torch.inf)
            return (others.topk(min(count, others.shape[1] - 1)).indices.cpu(),)

        (tokens,) = self._of_all(asked, likeliest)
        begun = [
            (example, token)
            for example, own in zip(examples, tokens.tolist(), strict=True)
            for token in own
        ]
        texts = self._continued(
            [(*prompt_of(example), token) for example, token in begun],
            [example.answer_length - 1 for example, _ in begun],
        )
        return [
            Encoded(text, example.answer_start)
            for (example, _), text in zip(begun, texts, strict=True)
        ]

    def _beginnings(self, examples: Sequence[Encoded], count: int) -> list[Beginning]:
        """Return where each prompt is cut, with up to `count` tokens that may come next."""
        halves = [
            Encoded(each.ids[: each.answer_start], (each.answer_start + 1) // 2)
            for each in examples
        ]

        def cuts(batch: Batch) -> Tensors:
            parts = torch.split(answer_logits(self.model, batch), batch.answer_tokens.tolist())
            places = torch.stack([least_sure(part) for part in parts])
            rows = [part[place] for part, place in zip(parts, places, strict=True)]
            wanted = min(count, rows[0].numel())
            return places.cpu(), torch.stack(rows).topk(wanted).indices.cpu()

        places, tokens = self._of_all(halves, cuts)
        found = []
        for example, half, place, row in zip(
            examples, halves, places.tolist(), tokens.tolist(), strict=True
        ):
            end = half.answer_start + place
            # The token that begins a sibling stands for one of the prompt's.
            size = len(example.ids) - end - 1
            found.append(Beginning(example.ids[:end], tuple(row), size))
        return found

    @torch.no_grad()
    def _of_all(self, examples: Sequence[Encoded], of_batch: Callable[[Batch], Tensors]) -> Tensors:
        return of_all(self.model, examples, self.options, of_batch)

    def _continued(self, starts: Sequence[Ids], sizes: Sequence[int]) -> list[Ids]:
        """Return the starts, each with as many more tokens, or fewer where the text ends."""
        sizes = [min(size, _LONGEST) for size in sizes]
        longest = max(sizes, default=0)
        together: dict[int, list[int]] = {}
        for place, (start, size) in enumerate(zip(starts, sizes, strict=True)):
            # After some starts the model may have no room for as much as after others.
            wanted = len(start) + longest
            fits = fitting_length(self.model, wanted) == wanted
            together.setdefault(longest if fits else size, []).append(place)
        found, loaded = list(starts), LoadedModel(self.model, self.tokenizer)
        options = self.options
        for size, places in together.items():
            if not size:
                continue
            rows = [starts[place] for place in places]
            added = continue_rows(
                loaded,
                rows,
                size,
                batch_size=options.batch_size,
                team=options.team,
                # A GPU says when its memory runs out, a CPU does not.
                max_tokens=None if options.overhead is None else options.max_tokens,
            )
            for place, more in zip(places, added, strict=True):
                found[place] = (*starts[place], *more[: sizes[place]])
        return found


def least_sure(logits: torch.Tensor) -> torch.Tensor:
    """Return the row of logits [T, V] whose distribution has the highest entropy."""
    logs = logits.log_softmax(1)
    return (-(logs.exp() * logs).sum(1)).argmax()


def shared(beginnings: Sequence[Beginning]) -> list[Beginning]:
    """Return each beginning once, with the number of prompts that begin so."""
    found: dict[Ids, Beginning] = {}
    for own in beginnings:
        if known := found.get(own.ids):
            own = replace(
                known, size=max(known.size, own.size), prompts=known.prompts + own.prompts
            )
        found[own.ids] = own
    return list(found.values())


def mentions(text: Ids, answers: Sequence[Ids]) -> bool:
    """Return whether one of the answers is part of a text."""
    return any(
        text[place : place + len(answer)] == answer
        for answer in answers
        for place in range(len(text) - len(answer) + 1)
    )


def says(text: str, answers: Sequence[str]) -> bool:
    """Return whether one of the answers stands in a text, also where its tokens are others."""
    return any(
        re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", text) for answer in answers if answer
    )


def answers_in(siblings: Sequence[Encoded], example: Encoded) -> list[Ids]:
    """Return the answers that siblings give: what follows the last token of the example's prompt.

    Each is as long as the example's answer, or ends before.
    """
    last, size = example.ids[example.answer_start - 1], example.answer_length
    found = []
    for sibling in siblings:
        told = sibling.ids[sibling.answer_start :]
        if last in told:
            place = told.index(last) + 1
            found.append(told[place : place + size])
    return [answer for answer in dict.fromkeys(found) if answer]
