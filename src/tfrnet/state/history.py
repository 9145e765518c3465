"""What the ledger says happened: what is applied now, and which generation is current."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# What of an entry is needed to play it back once more, after a rollback.
_PLAYED = ("kind", "id", "outcome", "request_digest", "to", "generation", "state_after")


class History:
    """The ledger's entries played back.

    `applied` and `rejected` map request ids to keyed digests, `digests` generations to digests.
    """

    def __init__(self) -> None:
        self.generation = 0
        self.requests_seen = 0
        self.applied: dict[str, str] = {}
        self.rejected: dict[str, str] = {}
        self.digests: dict[int, str] = {}
        self._entries: list[dict[str, Any]] = []
        self._last_of: dict[int, int] = {}  # generation -> position of its last entry

    @classmethod
    def of(cls, entries: Sequence[dict[str, Any]]) -> History:
        """Play back a ledger."""
        history = cls()
        for entry in entries:
            history.advance(entry)
        return history

    def advance(self, entry: dict[str, Any]) -> None:
        """Take in the next entry."""
        if entry["kind"] == "request":
            self.requests_seen += 1
            if entry["outcome"] == "accepted":
                self.applied[entry["id"]] = entry["request_digest"]
                self.rejected.pop(entry["id"], None)
            else:
                self.rejected[entry["id"]] = entry["request_digest"]
        elif entry["kind"] == "rollback":
            # Undone requests may be asked for again, rejected ones tried again.
            then = History.of(self._entries[: self._last_of[entry["to"]] + 1])
            self.applied, self.rejected = then.applied, then.rejected
        self.generation = entry["generation"]
        self.digests[self.generation] = entry["state_after"]
        self._last_of[self.generation] = len(self._entries)
        self._entries.append({name: entry[name] for name in _PLAYED if name in entry})
