"""What the ledger says happened: what is applied now, and which generation is current."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class History:
    """The ledger's entries played back."""

    generation: int = 0
    requests_seen: int = 0
    applied: dict[str, str] = field(default_factory=dict)  # request id -> keyed digest
    rejected: dict[str, str] = field(default_factory=dict)
    digests: dict[int, str] = field(default_factory=dict)  # generation -> state digest

    @classmethod
    def of(cls, entries: Sequence[dict[str, Any]]) -> History:
        """Play back a ledger."""
        history = cls()
        at_generation: dict[int, tuple[dict[str, str], dict[str, str]]] = {}
        for entry in entries:
            kind = entry["kind"]
            if kind == "request":
                history.requests_seen += 1
                outcome = history.applied if entry["outcome"] == "accepted" else history.rejected
                outcome[entry["id"]] = entry["request_digest"]
                if entry["outcome"] == "accepted":
                    history.rejected.pop(entry["id"], None)
            elif kind == "rollback":
                # Undone requests may be asked for again, rejected ones tried again.
                applied, rejected = at_generation[entry["to"]]
                history.applied, history.rejected = dict(applied), dict(rejected)
            history.generation = entry["generation"]
            history.digests[history.generation] = entry["state_after"]
            at_generation[history.generation] = (dict(history.applied), dict(history.rejected))
        return history
