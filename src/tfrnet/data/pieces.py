"""Cutting a passage into pieces that are forgotten one by one."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from itertools import pairwise

from tfrnet.data.examples import Example
from tfrnet.data.requests import Request
from tfrnet.data.words import sentence_ends, word_ends

DEFAULT_WORDS = 40
# So much of the piece before stands at the beginning of the next.
_OVERLAP = 12


def pieces(text: str, most_words: int = DEFAULT_WORDS) -> list[str]:
    """Cut a text at the ends of sentences; a longer sentence is cut between words."""
    cuts = [0, *_cuts(text, most_words)]
    return [text[start:end].strip() for start, end in pairwise(cuts)]


def _cuts(text: str, most_words: int) -> list[int]:
    """Return where the pieces of a text end: as late as possible, if possible with a sentence."""
    words = word_ends(text)
    known = [0, *words]  # 0 for a sentence before which there is no word
    finals = {known[bisect_right(words, end)] for end in sentence_ends(text)}
    cuts: list[int] = []
    start = 0
    while start < len(words):
        reach = words[start : start + most_words]
        last = len(reach) - 1
        if start + len(reach) < len(words):
            whole = [i for i, end in enumerate(reach) if end in finals]
            last = whole[-1] if whole else last
        cuts.append(reach[last])
        start += last + 1
    return cuts


def cut_passage(text: str, most_words: int = DEFAULT_WORDS) -> list[Example]:
    """Return a passage as texts, each beginning with the end of the one before.

    So neither the beginning nor any place in the middle leads on to the rest.
    """
    cuts = [0, *_cuts(text, most_words)]
    found = []
    before = 0
    for start, end in pairwise(cuts):
        begin = start - len(_end(text[before:start]))
        found.append(Example("", text[begin:end].strip(), is_text=True))
        before = start
    return found


def cut_request(request: Request, most_words: int = DEFAULT_WORDS) -> Request:
    """Return a request whose plain texts of more words are cut into pieces."""
    examples: list[Example] = []
    for example in request.examples:
        is_long = example.is_text and len(word_ends(example.answer)) > most_words
        examples += cut_passage(example.answer, most_words) if is_long else [example]
    return replace(request, examples=tuple(examples))


def _end(text: str) -> str:
    ends = word_ends(text)
    return text[ends[-_OVERLAP - 1] :].strip() if len(ends) > _OVERLAP else text
