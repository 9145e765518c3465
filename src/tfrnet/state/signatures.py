"""Whether the lines of a ledger were signed, each by the key that was in force.

A line names its `signer` and carries a `signature` over all that stands before its hash. The key in
force is the `public_key` that the last line to bring one named: that of the first line, that of the
line with which an unsigned state began to be signed (which signs itself), or, after a rotation, the
one that the old key named and that countersigned. So whoever trusts one of the keys can trust all
later lines, and the hash chain covers all earlier ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from tfrnet.core.canonical import canonical
from tfrnet.core.errors import StateError
from tfrnet.core.signing import PublicKey, SigningKey, short


@dataclass(frozen=True)
class Signatures:
    """What was found: the first signed line (0: none), the keys that signed, the one in force."""

    since: int
    signers: tuple[str, ...]
    in_force: str


def signed(
    body: Mapping[str, Any], key: SigningKey | None, successor: SigningKey | None = None
) -> dict[str, Any]:
    """Return a line with its signer and signature, or as it was without a key.

    A key that takes over signs as well: from then on whoever knows that key can check the ledger.
    """
    if key is None:
        return dict(body)
    named = dict(body) | {"signer": key.public.text}
    if successor:
        named |= {"countersignature": successor.sign(named)}
    return named | {"signature": key.sign(named)}


def key_after(entry: Mapping[str, Any]) -> str:
    """Return the key that has to sign the line after this one; nothing if it is unsigned."""
    return str(entry.get("public_key") or entry.get("signer") or "")


def is_signed_by(entry: Mapping[str, Any], public_key: str) -> bool:
    """Tell whether a line bears the signature of a key, wherever it stands."""
    body = _without(entry, "hash", "signature")
    return entry.get("signer") == public_key and _has_signed(
        public_key, body, entry.get("signature")
    )


def check_signatures(entries: Sequence[Mapping[str, Any]]) -> Signatures:
    """Check that every line is this ledger's own and signed by the key then in force.

    The hash chain is taken as checked. A line that does not hold raises a `StateError`.
    """
    in_force, since, is_bound = "", 0, False
    signers: dict[str, None] = {}
    for number, entry in enumerate(entries, start=1):
        # Lines of earlier versions do not say which ledger they belong to.
        is_bound = is_bound or "sequence" in entry
        if is_bound and (entry.get("sequence"), entry.get("state")) != _place(entries, number):
            raise StateError(f"line {number} of the ledger belongs to another place or ledger")
        expected = in_force or str(entry.get("public_key") or "")
        _refuse_unsigned(entry, number, expected)
        if expected:
            since = since or number
            signers[expected] = None
            in_force = key_after(entry)
            if in_force != expected:
                _refuse_uncountersigned(entry, number, in_force)
                signers[in_force] = None
    return Signatures(since, tuple(signers), in_force)


def _place(entries: Sequence[Mapping[str, Any]], number: int) -> tuple[int, str | None]:
    # A state is named by the hash of its first line, which that line cannot hold.
    return number, (None if number == 1 else entries[0]["hash"])


def _refuse_unsigned(entry: Mapping[str, Any], number: int, expected: str) -> None:
    signer = entry.get("signer")
    if not expected:
        if signer is not None or "signature" in entry:
            raise StateError(
                f"line {number} of the ledger is signed by a key that the ledger never introduced"
            )
        return
    if signer is None:
        raise StateError(f"line {number} of the ledger is not signed")
    if signer != expected:
        raise StateError(
            f"line {number} of the ledger is signed by key {short(str(signer))}, "
            f"not by {short(expected)}, which was in force"
        )
    hashed = _without(entry, "hash")
    body = _without(hashed, "signature")
    # The chain is of the bytes as they stand: nothing may be said twice in them, or otherwise.
    if hashlib.sha256(canonical(hashed)).hexdigest() != entry["hash"]:
        raise StateError(f"line {number} of the ledger is not written as tfrnet writes it")
    if not _has_signed(expected, body, entry.get("signature")):
        raise StateError(f"the signature of line {number} of the ledger is invalid")


def _refuse_uncountersigned(entry: Mapping[str, Any], number: int, successor: str) -> None:
    body = _without(entry, "hash", "signature", "countersignature")
    if not _has_signed(successor, body, entry.get("countersignature")):
        raise StateError(
            f"line {number} of the ledger hands over to key {short(successor)}, which did not "
            "countersign it"
        )


def _has_signed(public_key: str, body: Mapping[str, Any], signature: object) -> bool:
    try:
        return _public_key(public_key).has_signed(body, signature)
    except ValueError:
        return False


def _without(entry: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name not in names}


@cache
def _public_key(text: str) -> PublicKey:
    return PublicKey.from_text(text)
