"""What a campaign found."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

# Enough to find a fault by; the number of all is kept beside them.
_SHOWN = 20


@dataclass
class Result:
    """How often something was tried, by what was tried, and every time it went wrong."""

    name: str
    expected: str
    seed: int
    counts: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    seconds: int = 0

    def count(self, what: str, number: int = 1) -> None:
        """Note attempts."""
        self.counts[what] = self.counts.get(what, 0) + number

    @property
    def tried(self) -> int:
        """All attempts together."""
        return sum(self.counts.values())

    def add(self, other: Result) -> None:
        """Take in what another process found in the same campaign."""
        for what, number in other.counts.items():
            self.count(what, number)
        self.wrong += other.wrong

    def to_dict(self) -> dict[str, Any]:
        """Return the result as it stands in a JSON file."""
        return {
            "name": self.name,
            "expected": self.expected,
            "seed": self.seed,
            "tried": self.tried,
            "seconds": self.seconds,
            "counts": dict(sorted(self.counts.items())),
            "wrong": len(self.wrong),
            "first_wrong": self.wrong[:_SHOWN],
        }

    def to_json(self) -> str:
        """Return everything, for another process to take in."""
        return json.dumps(vars(self))

    @classmethod
    def from_json(cls, text: str) -> Result:
        """Read what another process wrote."""
        return cls(**json.loads(text))
