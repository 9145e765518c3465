"""Which lines of a ledger made the current generation what it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Entries = Sequence[Mapping[str, Any]]


def line_in_effect(entries: Entries, request_id: str) -> tuple[int, Mapping[str, Any]] | None:
    """Return the line, and its number, by which a request is applied now; None if it is not."""
    # The line that made each generation: later lines of the same generation changed nothing.
    made: dict[int, tuple[int, Mapping[str, Any]]] = {}
    for number, entry in enumerate(entries, start=1):
        made.setdefault(entry["generation"], (number, entry))
    generation = entries[-1]["generation"]
    while generation > 0:
        number, line = made[generation]
        if line["kind"] == "request" and line["id"] == request_id:
            return number, line
        if line["kind"] == "repair" and request_id not in line["applied"]:
            return None
        # A return takes over an earlier generation; anything else follows the one before. What a
        # repair took over may come from lines that are lost: then the way goes on before them.
        generation = min(line.get("to", line.get("salvaged", generation)), generation - 1)
    return None


def why_not_in_effect(entries: Entries, request_id: str) -> str:
    """Return in words why a request is not applied now."""
    name = f"request {request_id!r}"
    lines = [entry for entry in entries if entry.get("id") == request_id]
    if not lines:
        return f"{name} is not in the ledger"
    applied = [entry for entry in lines if entry["outcome"] == "accepted"]
    if not applied:
        return f"{name} was rejected at {lines[-1]['time']}, so nothing was deleted"
    last = applied[-1]
    undone = next(
        entry
        for entry in entries[entries.index(last) :]
        if ("to" in entry and entry["to"] < last["generation"])
        or (entry["kind"] == "repair" and request_id not in entry["applied"])
    )
    how = "lost with damage, as the repair found" if undone["kind"] == "repair" else "rolled back"
    return f"{name} was applied at {last['time']} and {how} at {undone['time']}"
