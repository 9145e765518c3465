"""Guessing script and language from characters alone: plain, and honest about what it cannot tell.

The script is that of most letters. The language is the one of four whose everyday sentences share
most runs of three letters with a text, if one stands out; else it is not guessed.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from functools import cache

from tfrnet.data.general import LANGUAGES, general_texts
from tfrnet.data.likeness import likeness, trigrams

# A guess needs this much likeness, and this much more than for any other language.
_LEAST = 0.25
_AHEAD = 0.08
# Of fewer runs of letters chance has too large a part.
_ENOUGH = 12


def script(text: str) -> str:
    """Return the script of most letters, such as latin or cyrillic; empty without letters."""
    letters = (unicodedata.name(c, "") for c in text if c.isalpha())
    counts = Counter(name.split()[0].lower() for name in letters if name)
    return counts.most_common(1)[0][0] if counts else ""


def guess_language(text: str) -> str:
    """Return english, french, german or spanish, or nothing where none stands out."""
    found = trigrams(text)
    if len(found) < _ENOUGH:
        return ""
    scores = sorted(((likeness(found, _profile(name)), name) for name in LANGUAGES), reverse=True)
    (best, name), (second, _) = scores[:2]
    return name if best >= _LEAST and best - second >= _AHEAD else ""


@cache
def _profile(language: str) -> frozenset[str]:
    return trigrams(" ".join(general_texts()[language]))
