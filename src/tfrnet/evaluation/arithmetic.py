"""When a generated text is the right number."""

from __future__ import annotations

import re
from dataclasses import dataclass

# The whole number at the beginning (possessive: never a part of it); a full stop after it may end
# the sentence but not begin decimals.
_NUMBER = re.compile(r"-?\d[\d,]*+(?!\.\d)")
NEW_TOKENS = 10


@dataclass(frozen=True)
class NumberMatch:
    """`exact` is the headline: the text begins with the number. `strict`: it is nothing else."""

    exact: bool
    strict: bool


def match_number(generated: str, gold: str) -> NumberMatch:
    """Compare a generation's first line with the right number."""
    text = generated.partition("\n")[0].strip()
    found = _NUMBER.match(text)
    exact = found is not None and int(found.group().replace(",", "")) == int(gold)
    return NumberMatch(exact, text == gold.strip())
