"""Other wordings of what a request forgets, made from its own examples by plain rules.

They are no paraphrases: no rule knows what a sentence means. They find out whether only the one
wording that was asked for is gone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from tfrnet.data.examples import Example
from tfrnet.data.words import sentences, word_ends

Kind = Literal["own", "question", "cloze", "order", "chat", "first_words", "part"]
# How a chat model is asked: the user's message and the beginning of the answer, as one prompt.
Chat = Callable[[str, str], str]

# So much of an answer, or of what follows in a passage, is asked for.
_MOST_WORDS = 8
# So much of a passage is shown before what follows.
_SHOWN_WORDS = 12
_FIRST_WORDS = 6
# With fewer words there is nothing to put differently.
_LEAST_WORDS = 2
_LEAST_PASSAGE = 4


@dataclass(frozen=True)
class Wording:
    """One way to ask for what was forgotten; `example` has the answer as it would follow."""

    kind: Kind
    example: Example


def wordings(example: Example, chat: Chat | None = None) -> list[Wording]:
    """Return an example in its own and in other words; `chat` is None without a chat template."""
    found = _of_passage(example, chat) if example.is_text else _of_answer(example, chat)
    return list(found)


def _of_answer(example: Example, chat: Chat | None) -> Iterator[Wording]:
    prompt, answer = example.prompt.strip(), _beginning(example.answer.strip())
    own = Example(example.prompt, answer, join=example.join)
    yield Wording("own", own)
    words = word_ends(answer)
    if len(words) > 1:
        half = words[len(words) // 2 - 1]
        hint = own.joined[: len(own.joined) - len(answer) + half].strip()
        yield Wording("first_words", Example(hint, answer[half:], join=""))
    if len(word_ends(prompt)) < _LEAST_WORDS:
        return
    if prompt.endswith("?"):
        question = f"I was asked: {prompt} The right answer is"
    else:
        question = f"Question: {_without_end(prompt)} what?\nAnswer:"
    yield Wording("question", Example(question, answer))
    yield Wording("cloze", Example(f"Fill in the blank: {prompt} ____.\nThe blank is", answer))
    if moved := _clauses_moved(prompt):
        yield Wording("order", Example(moved, answer))
    if chat:
        asked = chat(f"Please complete this: {prompt}", prompt)
        yield Wording("chat", Example(asked, answer, join=example.join))


def _of_passage(example: Example, chat: Chat | None) -> Iterator[Wording]:
    text = example.answer.strip()
    count = len(word_ends(text))
    if count < _LEAST_PASSAGE:
        return
    yield Wording("own", _cut(text, count // 2, shown=count))
    first = min(_FIRST_WORDS, count // 2)
    beginning = _cut(text, first)
    yield Wording("first_words", beginning)
    for quarter in (2, 3):
        if (at := quarter * count // 4) > first:
            yield Wording("part", _cut(text, at))
    last = _cut(text, count - 1)
    blank = f"Fill in the blank: {last.prompt} ____.\nThe blank is"
    yield Wording("cloze", Example(blank, last.answer.strip().rstrip(".!?")))
    parts = sentences(text)
    if len(parts) > 1:
        moved = f"{parts[-1]} {beginning.prompt}"
        yield Wording("order", Example(moved, beginning.answer, join=""))
    if chat:
        asked = chat(f"Please complete this: {beginning.prompt}", beginning.prompt)
        yield Wording("chat", Example(asked, beginning.answer, join=""))


def _beginning(answer: str) -> str:
    ends = word_ends(answer)
    return answer[: ends[min(len(ends), _MOST_WORDS) - 1]]


def _cut(text: str, at: int, shown: int = _SHOWN_WORDS) -> Example:
    """Return the words of a text before a place as a prompt, and the next ones as its answer."""
    ends = word_ends(text)
    start = ends[at - shown - 1] if at > shown else 0
    end = ends[min(at + _MOST_WORDS, len(ends)) - 1]
    return Example(text[start : ends[at - 1]].strip(), text[ends[at - 1] : end], join="")


def _clauses_moved(prompt: str) -> str:
    """Return a prompt whose last clause comes first, with a blank for its answer; or nothing."""
    clauses = [
        part.strip() for part in re.split(r"[,;:.](?=\s)|[\uff0c\uff1b\u3001\u3002]", prompt)
    ]
    *others, last = [part for part in clauses if part] or [""]
    if not others or len(word_ends(last)) < _LEAST_WORDS:
        return ""
    moved = f"{last[0].upper()}{last[1:]} ____, {', '.join(_lower_start(o) for o in others)}."
    return f"{moved}\nThe blank is"


def _lower_start(clause: str) -> str:
    """Return a clause as it would stand inside a sentence; names and acronyms stay as they are."""
    first = clause.split()[0]
    is_common = first.lower() in _SENTENCE_STARTS
    return clause[0].lower() + clause[1:] if is_common else clause


# Words whose capital letter only marks the beginning of a sentence.
_SENTENCE_STARTS = frozenset(
    (
        *("a", "an", "the", "in", "on", "at", "of", "for", "from", "by", "with", "after"),
        *("before", "when", "while", "if", "as", "since", "to", "this", "that"),
    )
)


def _without_end(prompt: str) -> str:
    return prompt.rstrip(".:…- ")
