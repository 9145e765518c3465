"""Commands whose work several processes of a launcher can share."""

from __future__ import annotations

from collections.abc import Callable

_shared: set[Callable[..., int]] = set()


def shared(command: Callable[..., int]) -> Callable[..., int]:
    """Mark a command that shares its work among processes; others run in the first process only."""
    _shared.add(command)
    return command


def is_shared(command: Callable[..., int]) -> bool:
    """Tell whether a command was marked."""
    return command in _shared
