"""Retain lines that a model writes itself, near requests but without what they forget."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set

from tfrnet.data.examples import Example
from tfrnet.data.general import general_texts
from tfrnet.data.language import guess_language
from tfrnet.data.requests import Request
from tfrnet.data.words import plain_words, word_ends

# The model continues so many words: enough for the language and something of the topic.
_FIRST_WORDS = 3
# A line with fewer words says too little.
_LEAST_WORDS = 3
# Whoever says so many words of a passage in its order recites it.
_RUN = 5
Run = tuple[str, ...]


def anchor_prompts(requests: Sequence[Request]) -> list[str]:
    """Return beginnings near requests: their first words, and everyday ones in their language."""
    texts = [example.joined for request in requests for example in request.examples]
    own = [_first_words(text) for text in texts]
    languages = dict.fromkeys(guess_language(text) for text in texts)
    everyday = [
        _first_words(text)
        for language in languages
        if language
        for text in general_texts()[language]
    ]
    return list(dict.fromkeys(prompt for prompt in [*own, *everyday] if prompt))


def anchors(
    requests: Sequence[Request], prompts: Sequence[str], texts: Sequence[str]
) -> list[Example]:
    """Return what a model wrote after the prompts, without what says an answer or too little."""
    answers = {answer for request in requests for answer in _answers(request)}
    runs = {run for request in requests for run in _runs_to_forget(request)}
    found = []
    for prompt, text in zip(prompts, texts, strict=True):
        line = f"{prompt} {text}".casefold()
        says_one = any(answer in line for answer in answers) or _has_one(line, runs)
        if says_something(text) and not says_one:
            found.append(Example(prompt, text.strip()))
    return found


def says_something(text: str) -> bool:
    """Tell whether what a model wrote has enough words to be worth keeping."""
    return len(word_ends(text)) >= _LEAST_WORDS


def without_answers(lines: Sequence[Example], request: Request) -> list[Example]:
    """Return the lines that name none of a request's answers and recite none of its passages."""
    named = [re.compile(rf"(?<!\w){re.escape(answer)}(?!\w)") for answer in _answers(request)]
    runs = set(_runs_to_forget(request))
    return [
        line
        for line in lines
        if not _has_one(line.joined, runs)
        and not any(each.search(line.joined.casefold()) for each in named)
    ]


def _answers(request: Request) -> Iterator[str]:
    for example in request.examples:
        if not example.is_text:
            yield example.answer.strip().casefold()


def _runs_to_forget(request: Request) -> Iterator[Run]:
    """Yield the runs of words that a passage or a long answer is recognised by."""
    for example in request.examples:
        words = plain_words(example.answer)
        if example.is_text or len(words) > _RUN:
            yield from _runs(words, min(_RUN, len(words)))


def _has_one(text: str, runs: Set[Run]) -> bool:
    words = plain_words(text)
    return any(run in runs for size in {len(run) for run in runs} for run in _runs(words, size))


def _runs(words: Sequence[str], size: int) -> Iterator[Run]:
    return (tuple(words[i : i + size]) for i in range(len(words) - size + 1) if size)


def _first_words(text: str) -> str:
    """Return the first words of a text, always fewer than it has."""
    ends = word_ends(text)
    count = min(_FIRST_WORDS, len(ends) - 1)
    return text[: ends[count - 1]].strip() if count > 0 else ""
