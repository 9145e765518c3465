"""How alike texts are by their characters: a plain measure of topic and language, and no more.

Two texts are alike as far as they share runs of three letters. That tells scripts apart, languages
of the same script fairly well, and topics as far as they share words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain

_LENGTH = 3


def trigrams(text: str) -> frozenset[str]:
    """Return the runs of three characters in a text, in lower case, words set apart by spaces."""
    padded = f" {' '.join(text.lower().split())} "
    return frozenset(padded[i : i + _LENGTH] for i in range(len(padded) - _LENGTH + 1))


def likeness(wanted: frozenset[str], other: frozenset[str]) -> float:
    """Return the share of one text's trigrams that another has, from 0 to 1."""
    return len(wanted & other) / len(wanted) if wanted else 0.0


class Texts:
    """Texts by their trigrams, to find out fast how alike the most similar of them is."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._places: dict[str, list[int]] = {}
        for place, text in enumerate(texts):
            for each in trigrams(text):
                self._places.setdefault(each, []).append(place)

    def likeness(self, text: str) -> float:
        """Return the largest likeness of any of the texts to a given one."""
        wanted = trigrams(text)
        shared = Counter(chain.from_iterable(self._places.get(each, ()) for each in wanted))
        return max(shared.values()) / len(wanted) if shared else 0.0


def nearest(wanted: Sequence[str], others: Sequence[frozenset[str]], count: int) -> list[int]:
    """Return which texts are most like any of those wanted, the nearest first."""
    sets = [trigrams(text) for text in wanted]
    scores = [max((likeness(each, other) for each in sets), default=0.0) for other in others]
    return sorted(range(len(others)), key=lambda i: (-scores[i], i))[:count]
