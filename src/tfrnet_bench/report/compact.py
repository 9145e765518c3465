"""Shortening values to keep a page small, without changing what it shows."""

from __future__ import annotations

import math
from typing import Any

_DIGITS = 5


def rounded(value: Any) -> Any:
    """Return JSON values with five significant digits; a number that is not finite is None."""
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(name): rounded(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(part) for part in value]
    return value


def clipped(text: Any, length: int) -> str:
    """Return a text without its middle if it is too long; an ellipsis says where.

    The question of a prompt often stands at its end, after a long passage.
    """
    whole = "" if text is None else str(text)
    if len(whole) <= length:
        return whole
    start = length // 3
    return f"{whole[:start].rstrip()} … {whole[start - length :].lstrip()}"
