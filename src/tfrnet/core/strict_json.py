"""JSON without the freedoms that let two readers understand one text differently."""

from __future__ import annotations

import json
import math
from typing import Any

_MOST_DIGITS = 100


class RepeatedKeyError(ValueError):
    """An object has a key twice, so readers could disagree on its value."""


def parse(text: str | bytes) -> Any:
    """Return the value of a JSON text; a `ValueError` says what is wrong with it.

    Refused beside what is not JSON: a key that an object has twice, NaN and infinities, numbers of
    over 100 digits, and nesting that Python cannot follow (some hundred levels).
    """
    try:
        return json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_refuse_constant,
            parse_int=_integer,
            parse_float=_finite,
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise RepeatedKeyError(f"the key {key!r} appears twice")
            seen.add(key)
    return found


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"a number has {len(digits)} digits, over the limit of {_MOST_DIGITS}")
    return int(digits)


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"the number {digits[:20]} is too large")
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")
