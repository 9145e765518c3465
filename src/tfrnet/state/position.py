"""Where a ledger stands: what its last line says, without reading the lines before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfrnet.state.history import History
from tfrnet.state.signatures import key_after


@dataclass(frozen=True)
class Position:
    """The last line that a store knows of, and what was reached with it."""

    lines: int
    length: int  # bytes of the ledger up to the end of the line
    head: str
    generation: int
    digest: str  # of the generation's tensors
    seen: int  # requests in all
    applied: int
    rejected: int
    oldest: int | None  # kept besides the first; None in lines that do not say
    measures: Mapping[str, Any] | None  # what is known of the generation's losses; None likewise
    public_key: str  # of the key that has to sign the next line; empty in an unsigned state

    @classmethod
    def told_by(cls, entry: Mapping[str, Any], length: int) -> Position | None:
        """Return the position that an entry states; an older version's entry states none."""
        if "sequence" not in entry:
            return None
        return cls(
            lines=entry["sequence"],
            length=length,
            head=entry["hash"],
            generation=entry["generation"],
            digest=entry["state_after"],
            oldest=entry["oldest"],
            measures=entry.get("measures"),
            public_key=key_after(entry),
            **entry["totals"],
        )

    @classmethod
    def derived(cls, history: History, lines: int, head: str, length: int) -> Position:
        """Return the position at the end of a history."""
        return cls(
            lines=lines,
            length=length,
            head=head,
            generation=history.generation,
            digest=history.digests[history.generation],
            seen=history.requests_seen,
            applied=len(history.applied),
            rejected=len(history.rejected),
            oldest=None,
            measures=None,
            public_key="",  # no line of an earlier version is signed
        )
