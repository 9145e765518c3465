"""Heads: where a ledger stood at a moment, for keeping where the state's holder cannot reach.

A state can be rolled back to an older copy, cut off or written anew as a whole, and look sound.
Held against a head that was kept elsewhere, it cannot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tfrnet.core.errors import InputError, StateError
from tfrnet.core.signing import PublicKey, SigningKey, short
from tfrnet.data.jsonlines import json_lines
from tfrnet.state.signatures import key_after, signed
from tfrnet.state.store import StateStore

SCHEMA = "tfrnet.head/1"
_TYPES = {"state": str, "sequence": int, "head": str, "generation": int, "time": str}


def make_head(store: StateStore, time: str, key: SigningKey | None) -> dict[str, Any]:
    """Return the head of a state's ledger, signed if there is a key."""
    return signed(
        {
            "schema": SCHEMA,
            "state": store.identity,
            "sequence": store.lines,
            "head": store.head,
            "generation": store.generation,
            "time": time,
        },
        key,
    )


def read_heads(path: Path) -> list[dict[str, Any]]:
    """Read a file of heads, one a line, and check that each is signed by the key it names."""
    heads = []
    for number, value in json_lines(path):
        if not isinstance(value, dict) or value.get("schema") != SCHEMA:
            raise InputError(f"{path}:{number}: this is not a head; 'tfrnet head' prints one")
        if any(type(value.get(name)) is not kind for name, kind in _TYPES.items()):
            raise InputError(f"{path}:{number}: this head is damaged")
        if "signer" in value or "signature" in value:
            _refuse_false(value, f"{path}:{number}")
        heads.append(value)
    if not heads:
        raise InputError(f"{path} holds no head; 'tfrnet head' prints one")
    return heads


def _refuse_false(head: Mapping[str, Any], where: str) -> None:
    body = {name: head[name] for name in head if name != "signature"}
    try:
        holds = PublicKey.from_text(head.get("signer")).has_signed(body, head.get("signature"))
    except ValueError:
        holds = False
    if not holds:
        raise InputError(f"{where}: the signature of this head is invalid, so it was changed")


def check_head(entries: Sequence[Mapping[str, Any]], head: Mapping[str, Any]) -> None:
    """Raise a `StateError` if a ledger does not go on from a head that it had."""
    identity, sequence = entries[0]["hash"], head["sequence"]
    if head["state"] != identity:
        raise StateError(
            f"the head is of state {head['state'][:12]} and this is state {identity[:12]}: another "
            "state, or one rewritten from its first line"
        )
    if sequence > len(entries):
        raise StateError(
            f"the ledger had {sequence} lines at {head['time']} and has {len(entries)}: lines were "
            "removed, or an older copy was put back"
        )
    line = entries[sequence - 1] if sequence > 0 else {}
    if (line.get("hash"), line.get("generation")) != (head["head"], head["generation"]):
        raise StateError(
            f"line {sequence} of the ledger is not the one that was there at {head['time']}: "
            "history was rewritten, or this is a fork of the state"
        )
    if "signer" in head and head["signer"] != key_after(line):
        raise StateError(
            f"the head is signed by key {short(head['signer'])}, which was not in force at line "
            f"{sequence} of the ledger; it was not made with this state's key"
        )
