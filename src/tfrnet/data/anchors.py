"""Retain lines that a model writes itself, near requests but without what they forget."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tfrnet.data.examples import Example
from tfrnet.data.general import general_texts
from tfrnet.data.language import guess_language
from tfrnet.data.requests import Request
from tfrnet.data.words import word_ends

# The model continues so many words: enough for the language and something of the topic.
_FIRST_WORDS = 3
# A line with fewer words says too little.
_LEAST_WORDS = 3


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
    found = []
    for prompt, text in zip(prompts, texts, strict=True):
        line = f"{prompt} {text}".casefold()
        if says_something(text) and not any(answer in line for answer in answers):
            found.append(Example(prompt, text.strip()))
    return found


def says_something(text: str) -> bool:
    """Tell whether what a model wrote has enough words to be worth keeping."""
    return len(word_ends(text)) >= _LEAST_WORDS


def without_answers(lines: Sequence[Example], request: Request) -> list[Example]:
    """Return the lines that name none of a request's answers and are none of its passages."""
    named = [re.compile(rf"(?<!\w){re.escape(answer)}(?!\w)") for answer in _answers(request)]
    passages = {each.joined.strip().casefold() for each in request.examples if each.is_text}
    return [
        line
        for line in lines
        if line.joined.strip().casefold() not in passages
        and not any(each.search(line.joined.casefold()) for each in named)
    ]


def _answers(request: Request) -> Iterator[str]:
    for example in request.examples:
        if not example.is_text:
            yield example.answer.strip().casefold()


def _first_words(text: str) -> str:
    """Return the first words of a text, always fewer than it has."""
    ends = word_ends(text)
    count = min(_FIRST_WORDS, len(ends) - 1)
    return text[: ends[count - 1]].strip() if count > 0 else ""
