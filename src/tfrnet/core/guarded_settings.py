"""The settings of every method: how long an example may be, and the guard."""

from __future__ import annotations

from dataclasses import dataclass

from tfrnet.core.drift import DRIFT_HELP, DRIFT_LIMIT
from tfrnet.core.settings import Settings, option


@dataclass(frozen=True)
class GuardedSettings(Settings):
    """What a method needs to check a request; a method's own settings derive from it."""

    max_length: int = option(
        256, "maximum tokens of an example; a longer one loses the start of its prompt", 2
    )
    guard_examples: int = option(
        64, "number of guard examples, drawn once in the life of a state", 1
    )
    use_guard: bool = option(True, "reject a request that raises the guard loss too much")
    guard_relative: float = option(0.05, "maximum relative rise of the guard loss per request", 0)
    guard_absolute: float = option(
        0.0, "further rise of the guard loss per request that is allowed, in nats", 0
    )
    drift_limit: float | None = option(DRIFT_LIMIT, DRIFT_HELP, at_least=1, fixed=False)
