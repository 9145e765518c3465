"""`tfrnet history`: the ledger for a person."""

from __future__ import annotations

from typing import Any

from tfrnet.cli import _options as opt
from tfrnet.cli._output import Output


def command(state: opt.State = opt.DEFAULT_STATE, as_json: opt.AsJson = False) -> int:
    """List every event of a state: requests with their outcome, rollbacks."""
    from tfrnet.state.store import StateStore

    output = Output(as_json)
    store = StateStore.open(state)
    for entry in store.entries:
        output.say(_line(entry))
    output.result("history", {"state": str(state), "entries": store.entries})
    return 0


def _line(entry: dict[str, Any]) -> str:
    start = f"{entry['time']}  generation {entry['generation']:>4}  "
    if entry["kind"] == "created":
        return f"{start}created"
    if entry["kind"] == "rollback":
        return f"{start}rolled back to generation {entry['to']}"
    text = f"{start}{entry['outcome']}  {entry['id']}  "
    if entry["outcome"] == "rejected":
        return f"{text}{entry['reason']}"
    return (
        f"{text}forget loss {entry['forget_loss_before']:.2f} -> {entry['forget_loss_after']:.2f}, "
        f"guard loss {entry['guard_loss_before']:.3f} -> {entry['guard_loss_after']:.3f}, "
        f"suppressed {entry['selected']}, recovered {entry['recovered']}"
    )
