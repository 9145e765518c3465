"""Measuring several sets of examples in one go, so that short sets share passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from tfrnet.data.examples import Encoded

if TYPE_CHECKING:
    from tfrnet.models.forward import Answers

Sets = Mapping[str, Sequence[Encoded]]
Measured = Mapping[str, "Answers"]

# The names of sets; that of general text is followed by its kind.
HOLDOUT, WORDINGS, KEPT, GENERAL = "holdout", "wordings", "kept", "general "


def measure(answers: Callable[[list[Encoded]], Answers], sets: Sets) -> dict[str, Answers]:
    """Return how the model as it is now gives each of the sets; an empty one is left out."""
    whole = [example for examples in sets.values() for example in examples]
    if not whole:
        return {}
    found = answers(whole)
    parts, start = {}, 0
    for name, examples in sets.items():
        if examples:
            parts[name] = found.part(start, start + len(examples))
        start += len(examples)
    return parts
