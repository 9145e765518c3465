"""What `tfrnet search` tries for a method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Point = Mapping[str, Any]


@dataclass(frozen=True)
class SearchSpace:
    """The settings that a search varies, each with its values in order, the default among them.

    One of them may be `preset`: which preset the others are changed in. A search begins at the
    defaults, changed by `start`: what an earlier search found.
    """

    axes: Mapping[str, tuple[Any, ...]]
    start: Point = field(default_factory=dict)
