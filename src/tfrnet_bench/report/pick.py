"""Taking figures out of results whose fields may be missing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def figure_at(values: Any, *path: str) -> float | None:
    """Return the number at a path of names; None if there is none."""
    for name in path:
        values = values.get(name) if isinstance(values, dict) else None
    return values if isinstance(values, int | float) else None


def present(values: Iterable[float | None]) -> list[float]:
    """Return the values that are there."""
    return [value for value in values if value is not None]
