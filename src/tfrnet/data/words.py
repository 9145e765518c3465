"""Words and sentences of a text, by plain rules that need no language."""

from __future__ import annotations

import re
from itertools import pairwise

# Scripts that are written without spaces: there every character counts as a word.
_NO_SPACES = "\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff"
_WORD = re.compile(rf"[{_NO_SPACES}]|[^\s{_NO_SPACES}]+")
_SIGNS = re.compile(r"^[\W_]+|[\W_]+$")
_SENTENCE_END = re.compile(r"[.!?…]+[\"'»”)]*\s+|[\u3002\uff01\uff1f]+[\u300d\u300f\uff09]*|\n{2,}")


def word_ends(text: str) -> list[int]:
    """Return where each word of a text ends."""
    return [match.end() for match in _WORD.finditer(text)]


def plain_words(text: str) -> list[str]:
    """Return the words of a text, in lower case and without the signs around them."""
    found = (_SIGNS.sub("", match[0]) for match in _WORD.finditer(text.casefold()))
    return [word for word in found if word]


def sentence_ends(text: str) -> list[int]:
    """Return where each sentence of a text ends, its last one at the end of the text."""
    ends = [match.end() for match in _SENTENCE_END.finditer(text)]
    return ends if ends and ends[-1] == len(text) else [*ends, len(text)]


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, without the space between them."""
    parts = [text[start:end].strip() for start, end in pairwise([0, *sentence_ends(text)])]
    return [part for part in parts if part]
