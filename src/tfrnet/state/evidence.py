"""What a ledger shows against somebody who may have changed it: signatures, key and heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfrnet.core.errors import StateError
from tfrnet.core.signing import PublicKey, short
from tfrnet.state.check import Check
from tfrnet.state.head import check_head
from tfrnet.state.signatures import Signatures, check_signatures

Entries = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Kept:
    """What somebody has kept of a state where its holder cannot reach it."""

    heads: tuple[Mapping[str, Any], ...] = ()
    public_key: PublicKey | None = None


NOTHING_KEPT = Kept()


def check_evidence(entries: Entries, kept: Kept) -> list[Check]:
    """Check a ledger whose chain holds: its signatures, and that it agrees with what was kept."""
    try:
        found = check_signatures(entries)
    except StateError as error:
        checks = [Check("signatures", False, str(error))]
        found = Signatures(0, (), "")
    else:
        checks = [Check("signatures", True, _signed_by(found, len(entries)))]
    if kept.public_key:
        checks.append(_check_key(found, kept.public_key))
    return checks + [_check_head(entries, head) for head in kept.heads]


def _signed_by(found: Signatures, lines: int) -> str:
    if not found.since:
        return "none: this state is not signed, so whoever can write to it can rewrite its history"
    keys = ", then ".join(map(short, found.signers))
    return f"lines {found.since} to {lines} are signed, by key {keys}"


def _check_key(found: Signatures, trusted: PublicKey) -> Check:
    passed = trusted.text in found.signers
    name = short(trusted.text)
    return Check("public key", passed, name if passed else f"no line is signed by key {name}")


def _check_head(entries: Entries, head: Mapping[str, Any]) -> Check:
    name = f"head of {head['time']}"
    try:
        check_head(entries, head)
    except StateError as error:
        return Check(name, False, str(error))
    detail = f"line {head['sequence']} of {len(entries)}"
    if "signer" not in head:
        detail += "; it is not signed, so it is worth as much as the place where it was kept"
    return Check(name, True, detail)
