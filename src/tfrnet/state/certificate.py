"""Certificates: what a ledger says of one applied request, signed, without a word of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tfrnet.core import __version__
from tfrnet.core.errors import InputError, StateError
from tfrnet.core.signing import PublicKey, SigningKey, short
from tfrnet.data.requests import Request
from tfrnet.state.base_model import bare_name
from tfrnet.state.check import Check
from tfrnet.state.digests import KEY_BYTES, data_digest, request_key
from tfrnet.state.history import History
from tfrnet.state.lineage import line_in_effect, why_not_in_effect
from tfrnet.state.manifest import Manifest
from tfrnet.state.signatures import check_signatures, signed

SCHEMA = "tfrnet.certificate/1"
_MOST_BYTES = 1 << 22

Entries = Sequence[Mapping[str, Any]]


def make_certificate(
    manifest: Manifest, entries: Entries, request_id: str, time: str, key: SigningKey
) -> dict[str, Any]:
    """Return the signed certificate of a request that is applied now."""
    found = line_in_effect(entries, request_id)
    if found is None:
        raise InputError(f"there is no certificate: {why_not_in_effect(entries, request_id)}")
    number, line = found
    last = entries[-1]
    statement = {
        "schema": SCHEMA,
        "request": {
            "id": request_id,
            "digest": line["request_digest"],
            "digest_key": line.get("digest_key", "state"),
            "examples": line.get("examples"),
        },
        "received": _first_received(entries[:number], request_id),
        "applied": line["time"],
        "generation": line["generation"],
        "method": {"name": manifest.method, "settings": manifest.config, "seed": manifest.seed},
        "guard": _before_and_after(line, "guard_loss")
        | {"examples": _judging(manifest, entries[:number])}
        | _groups(line),
        "forgetting": _before_and_after(line, "forget_loss") | _figures(line) | _wordings(line),
        "model": {"name": bare_name(manifest.model), "fingerprint": manifest.fingerprint},
        "state_digest": line["state_after"],
        "ledger": {
            "state": entries[0]["hash"],
            "sequence": number,
            "hash": line["hash"],
            "head": {"sequence": len(entries), "hash": last["hash"], "time": last["time"]},
        },
        "versions": line.get("versions", {}),
        "issued": {"time": time, "tfrnet": __version__},
    }
    return signed(statement, key)


def _judging(manifest: Manifest, entries: Entries) -> int:
    """Return how many guard examples were in use after these lines."""
    retired = History.of(entries).retired
    return sum(digest not in retired for digest in manifest.guard)


def _first_received(entries: Entries, request_id: str) -> str:
    """Return when a request was first tried; earlier versions kept only when that had ended."""
    first = next(entry for entry in entries if entry.get("id") == request_id)
    return str(first.get("received", first["time"]))


def _before_and_after(line: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {
        "loss_before": line.get(f"{name}_before"),
        "loss_after": line.get(f"{name}_after"),
    }


def _groups(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return the guard losses of groups, if there are any, without their names.

    A certificate leaves the house, and a name may say more than outsiders should know.
    """
    groups = [
        {"loss_before": losses["before"], "loss_after": losses["after"]}
        for losses in line.get("guard_groups", {}).values()
    ]
    return {"groups": groups} if groups else {}


def _figures(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a method measured besides; numbers only, which cannot hold a word."""
    figures = dict(line.get("details") or {}) | {
        name: line.get(name) for name in ("attempts", "selected", "recovered")
    }
    return {name: value for name, value in figures.items() if type(value) in (int, float)}


def _wordings(line: Mapping[str, Any]) -> dict[str, int]:
    """Return in how many wordings the model gave the answers, if the request was audited."""
    kinds = (line.get("audit") or {}).get("wordings", {}).values()
    if not kinds:
        return {}
    return {
        f"wordings_{name}": sum(kind[key] for kind in kinds)
        for name, key in (("tried", "tried"), ("given_before", "before"), ("given_after", "after"))
    }


def certificate_bytes(certificate: Mapping[str, Any]) -> bytes:
    """Return a certificate as it stands in its file."""
    text = json.dumps(certificate, indent=1, sort_keys=True, allow_nan=False)
    return (text + "\n").encode("ascii")


def request_key_for(certificate: Mapping[str, Any], state_key: bytes) -> bytes:
    """Return the key to the digest in a certificate, which is that of its request alone."""
    request = certificate["request"]
    if request["digest_key"] != "request":
        raise InputError(
            f"request {request['id']!r} was applied by an earlier version of tfrnet, whose "
            "states have one key for all requests; leave out --data-key and check with --state"
        )
    return request_key(state_key, request["id"])


def read_data_key(path: Path) -> bytes:
    """Read the file that holds the key to one request's digest."""
    try:
        key = bytes.fromhex(_content(path).decode("ascii"))
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise InputError(f"{path} is not a key that 'tfrnet certificate --data-key' wrote")
    return key


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None


def read_certificate(path: Path) -> dict[str, Any]:
    """Read a certificate; what is none is refused."""
    data = _content(path)
    try:
        value = json.loads(data)
        # One value, one file: nothing can be said twice or hidden.
        sound = _is_whole(value) and data.strip() == certificate_bytes(value).strip()
    except (ValueError, RecursionError):
        sound = False
    if not sound:
        raise InputError(f"{path} is not a certificate issued by tfrnet")
    return dict(value)


def _is_whole(value: Any) -> bool:
    """Tell whether all that a check looks at is there."""
    try:
        place, request = value["ledger"], value["request"]
        texts = (request["id"], request["digest"], request["digest_key"], place["state"])
        numbers = (place["sequence"], place["head"]["sequence"])
        return (
            value["schema"] == SCHEMA
            and all(isinstance(text, str) for text in texts)
            and all(type(number) is int and number > 0 for number in numbers)
            and all(isinstance(at["hash"], str) for at in (place, place["head"]))
        )
    except (KeyError, TypeError, IndexError):
        return False


def check_certificate(
    certificate: Mapping[str, Any],
    trusted: PublicKey | None = None,
    entries: Entries | None = None,
) -> list[Check]:
    """Check a certificate's signature, and hold it against a ledger, if that is given."""
    signer = certificate.get("signer")
    body = {name: certificate[name] for name in certificate if name != "signature"}
    try:
        holds = PublicKey.from_text(signer).has_signed(body, certificate.get("signature"))
    except ValueError:
        holds = False
    if not holds:
        return [Check("signature", False, "it is invalid: the certificate was changed")]
    checks = [_check_signer(str(signer), trusted, entries)]
    if entries is not None:
        checks.append(_check_ledger(certificate, entries))
    return checks


def check_data(certificate: Mapping[str, Any], request: Request, key: bytes) -> Check:
    """Check that a request is the one certified, by its digest under the key given."""
    wanted = certificate["request"]["digest"]
    if data_digest(request, key) == wanted:
        count = len(request.examples)
        many = f"{count} example{'s' if count > 1 else ''}"
        return Check("data", True, f"{many}, as in the request that was applied")
    return Check("data", False, "the examples, their order or the key differ")


def _check_signer(signer: str, trusted: PublicKey | None, entries: Entries | None) -> Check:
    name = short(signer)
    if trusted is None:
        return Check(
            "signature",
            True,
            f"by key {name}, which the certificate names itself; --public-key tells whose it is",
        )
    if signer == trusted.text or signer in _keys_after(trusted, entries):
        return Check("signature", True, f"by key {name}")
    return Check("signature", False, f"it is by key {name}, not by {short(trusted.text)}")


def _keys_after(trusted: PublicKey, entries: Entries | None) -> tuple[str, ...]:
    """Return the keys that a trusted one handed over to, as a sound ledger tells."""
    try:
        signers = check_signatures(entries or ()).signers
    except StateError:
        return ()
    return signers[signers.index(trusted.text) :] if trusted.text in signers else ()


def _check_ledger(certificate: Mapping[str, Any], entries: Entries) -> Check:
    place, request_id = certificate["ledger"], certificate["request"]["id"]
    if place["state"] != entries[0]["hash"]:
        return Check("ledger", False, "the certificate belongs to another state")
    for at in (place, place["head"]):
        if at["sequence"] > len(entries) or entries[at["sequence"] - 1]["hash"] != at["hash"]:
            return Check("ledger", False, f"line {at['sequence']} is not the one certified")
    found = line_in_effect(entries, request_id)
    if found is None:
        return Check("ledger", False, why_not_in_effect(entries, request_id))
    if found[0] != place["sequence"]:
        again = f"it was rolled back, and applied again by line {found[0]}"
        return Check("ledger", False, f"{again}; ask for a new certificate")
    return Check("ledger", True, f"line {found[0]} of {len(entries)}, and still in effect")
