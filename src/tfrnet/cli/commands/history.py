"""`tfrnet history`: the ledger in readable form."""

from __future__ import annotations

from typing import Any

from tfrnet.cli import options as opt
from tfrnet.cli.audit_lines import holdout_words, wordings_words
from tfrnet.cli.output import Output, short_record
from tfrnet.core.loss_words import group_words, loss_words
from tfrnet.core.outcome import verdict
from tfrnet.masking.strength import MaskStrength


def command(
    state: opt.State = opt.DEFAULT_STATE, full: opt.Full = False, as_json: opt.AsJson = False
) -> int:
    """List the events of a state: requests with their outcome, rollbacks, repairs and more.

    A request that a rollback took back says so at its end.
    """
    from tfrnet.state.store import StateStore

    output = Output(as_json)
    store = StateStore.open(state)
    entries = store.entries
    undone = store.history.undone()
    for number, entry in enumerate(entries):
        output.say(_line(entry) + (", undone since" if number in undone else ""))
    shown = [short_record(entry, full) for entry in entries]
    standing = {"applied": list(store.history.applied), "rejected": list(store.history.rejected)}
    output.result("history", {"state": str(state), "entries": shown} | standing)
    return 0


def _line(entry: dict[str, Any]) -> str:
    from tfrnet.core.signing import short

    start = f"{entry['time']}  generation {entry['generation']:>4}  "
    if entry["kind"] == "created":
        return f"{start}created"
    if entry["kind"] == "rollback":
        return f"{start}rolled back to generation {entry['to']}"
    if entry["kind"] == "repair":
        gone = entry.get("retired")
        return (
            f"{start}repaired: generation {entry['salvaged']} salvaged, "
            f"{entry['lost_lines']} lines lost, {len(entry['applied'])} requests applied"
            + (f", guard examples no longer used: {len(gone)}" if gone else "")
        )
    if entry["kind"] == "import":
        return f"{start}imported from an adapter of state {entry['from'][:12]}"
    if entry["kind"] == "key":
        # A first key signs the line that brings it in; of a later one the key before it does.
        since = "this" if entry.get("signer") == entry["public_key"] else "the next"
        return f"{start}signed by key {short(entry['public_key'])} from {since} line on"
    if entry["kind"] == "guard":
        return f"{start}guard examples no longer used: {len(entry['retired'])}"
    if entry["kind"] != "request":
        return f"{start}{entry['kind']}"
    text = f"{start}{verdict(entry)}  {entry['id']}  "
    if entry["outcome"] == "rejected":
        return f"{text}{entry['reason']}"
    losses = f"forget loss {_loss(entry, 'forget_loss')}, guard loss {_loss(entry, 'guard_loss')}"
    if groups := entry.get("guard_groups"):
        losses += f" (by group: {group_words(groups)})"
    if audit := entry.get("audit"):
        losses += f", {wordings_words(audit)}"
    if held_out := entry.get("holdout"):
        losses += f", hold-out {holdout_words(held_out)}"
    if reference := entry.get("reference"):
        losses += f", levels of {reference['examples']} reference examples"
    if wrong := entry.get("wrong_answers"):
        losses += f", {wrong['examples']} wrong answers named"
    # Methods without a mask have no such figures, and neither have ledgers of before.
    if strength := MaskStrength.recorded(entry.get("mask")):
        losses += f", mask {strength.change()}"
    return f"{text}{losses} ({entry['reason']})" if entry.get("reason") else f"{text}{losses}"


def _loss(entry: dict[str, Any], name: str) -> str:
    return loss_words(entry[f"{name}_before"], entry[f"{name}_after"])
