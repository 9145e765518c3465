"""Options that take several values, separated by commas."""

from __future__ import annotations

from tfrnet.core.errors import InputError


def names(text: str) -> tuple[str, ...]:
    """Return the different names of a list, in order."""
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def numbers(text: str, option: str, example: str) -> tuple[int, ...]:
    """Return the numbers of a list; anything else is an error with an example."""
    try:
        return tuple(int(name) for name in names(text))
    except ValueError:
        raise InputError(f"{option} takes numbers such as {example}, not {text!r}") from None
