"""What `tfrnet search` tries for a method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Point = Mapping[str, Any]


@dataclass(frozen=True)
class SearchSpace:
    """The settings that a search varies: the strength of a step, `steps`, and one of its own.

    `own` holds two values of a setting (or of several that belong together) that is specific to
    the method, the published default first. `start` is what differs from the defaults everywhere.
    """

    own: tuple[Point, Point]
    strength: str = "learning_rate"
    start: Point = field(default_factory=dict)
