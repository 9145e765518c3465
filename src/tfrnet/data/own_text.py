"""Text that a model wrote itself, where it stands in for retain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfrnet.data.examples import Example
from tfrnet.data.requests import parse_example


@dataclass(frozen=True)
class OwnText:
    """Lines in place of retain data, and others, from other beginnings, for the guard."""

    retain: list[Example]
    guard: list[Example]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "retain": [line.words() for line in self.retain],
            "guard": [line.words() for line in self.guard],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str) -> OwnText:
        """Check what `to_dict` has returned and read it again."""
        parts = ([parse_example(v, where) for v in values[name]] for name in ("retain", "guard"))
        return cls(*parts)
