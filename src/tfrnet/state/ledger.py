"""The ledger: one line per event, each holding the hash of the line before it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfrnet.core import files
from tfrnet.core.errors import StateError

GENESIS = "0" * 64


@dataclass(frozen=True)
class LedgerContent:
    """The whole lines of a ledger, and what stands after the last of them."""

    entries: list[dict[str, Any]]
    whole_bytes: int
    torn_bytes: int

    @property
    def head(self) -> str:
        """The hash of the last line."""
        return str(self.entries[-1]["hash"]) if self.entries else GENESIS


def chained(entry: Mapping[str, Any], previous: str) -> dict[str, Any]:
    """Return the entry with the hash of its predecessor and its own."""
    body = dict(entry) | {"previous": previous}
    return body | {"hash": _hash(body)}


def line(entry: Mapping[str, Any]) -> bytes:
    """Return the entry as a line of the file."""
    return _canonical(entry) + b"\n"


def append(path: Path, entry: Mapping[str, Any]) -> None:
    """Add a chained entry, durably."""
    files.append(path, line(entry))


def read(path: Path) -> LedgerContent:
    """Read a ledger and check its chain.

    A last line without an end is what a crash leaves and is reported as torn, not as an error;
    anything else that does not fit is damage.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise StateError(f"{path} is missing: the state is damaged") from None
    whole = data.rfind(b"\n") + 1
    entries: list[dict[str, Any]] = []
    previous = GENESIS
    for number, text in enumerate(data[:whole].split(b"\n")[:-1], start=1):
        try:
            entry = json.loads(text)
            body = {key: value for key, value in entry.items() if key != "hash"}
            sound = entry["previous"] == previous and entry["hash"] == _hash(body)
            # The hash is of the content; the bytes must be the ones that we write for it.
            sound = sound and text == _canonical(entry)
        except (ValueError, KeyError, AttributeError, TypeError):
            sound = False
        if not sound:
            raise StateError(
                f"{path} is damaged: line {number} does not follow from the line before it"
            )
        previous = entry["hash"]
        entries.append(entry)
    return LedgerContent(entries, whole, len(data) - whole)


def _canonical(value: Mapping[str, Any]) -> bytes:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii")


def _hash(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(_canonical(body)).hexdigest()
