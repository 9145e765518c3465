"""Losses before and after a request, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping

# Of many groups of guard examples, so many are shown.
_MOST_GROUPS = 4


def loss_words(before: float | None, after: float | None) -> str:
    """Return a loss before and after a request."""
    return " -> ".join("not finite" if v is None else f"{v:.3f}" for v in (before, after))


def group_words(values: Mapping[str, Mapping[str, float | None]]) -> str:
    """Return the guard losses of groups before and after, those that rose most first."""
    shown = sorted(values, key=lambda name: _rise(**values[name]), reverse=True)
    words = [f"{name} {loss_words(**values[name])}" for name in shown[:_MOST_GROUPS]]
    return ", ".join([*words, *(["..."] if len(shown) > _MOST_GROUPS else [])])


def _rise(before: float | None, after: float | None) -> float:
    return after / before if after is not None and before else math.inf
