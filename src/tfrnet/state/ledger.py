"""The ledger: one line per event, each holding the hash of the line before it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfrnet.core import files
from tfrnet.core.canonical import canonical
from tfrnet.core.errors import DamagedError
from tfrnet.core.signing import SigningKey
from tfrnet.state.signatures import signed

GENESIS = "0" * 64
# Enough for the last lines of nearly every ledger; where it is not, more is read.
_BLOCK = 1 << 16


@dataclass(frozen=True)
class LedgerContent:
    """The whole lines of a ledger, and how many bytes stand after the last of them."""

    entries: list[dict[str, Any]]
    whole_bytes: int
    torn_bytes: int

    @property
    def head(self) -> str:
        """The hash of the last line."""
        return str(self.entries[-1]["hash"]) if self.entries else GENESIS


@dataclass(frozen=True)
class Tail:
    """The end of a ledger, beginning with a line that is known by its hash."""

    entries: list[dict[str, Any]]
    whole_bytes: int  # of the ledger, up to the end of the last entry
    torn_bytes: int  # what a commit that was cut off has left after it


def chained(
    entry: Mapping[str, Any],
    previous: str,
    key: SigningKey | None = None,
    successor: SigningKey | None = None,
) -> dict[str, Any]:
    """Return the entry with the hash of its predecessor, signed if there is a key, and its hash."""
    body = signed(dict(entry) | {"previous": previous}, key, successor)
    return body | {"hash": hashlib.sha256(canonical(body)).hexdigest()}


def line(entry: Mapping[str, Any]) -> bytes:
    """Return the entry as a line of the file."""
    return canonical(entry) + b"\n"


def append(path: Path, entry: Mapping[str, Any]) -> None:
    """Add a chained entry, durably."""
    files.append(path, line(entry))


def read(path: Path, length: int | None = None) -> LedgerContent:
    """Read a ledger, or its first `length` bytes, and check its chain.

    A last line without an end is what a crash leaves and is reported as torn, not as an error;
    anything else that does not fit is damage.
    """
    with _missing_is_damage(path):
        data = path.read_bytes()[:length]
    whole = data.rfind(b"\n") + 1
    entries: list[dict[str, Any]] = []
    previous = GENESIS
    for number, text in enumerate(data[:whole].split(b"\n")[:-1], start=1):
        entry = parsed(text)
        if entry is None or entry["previous"] != previous:
            raise DamagedError(
                f"{path} is damaged: line {number} does not follow from the line before it"
            )
        previous = entry["hash"]
        entries.append(entry)
    return LedgerContent(entries, whole, len(data) - whole)


def read_first(path: Path) -> dict[str, Any]:
    """Return the entry that a ledger begins with, or nothing where its first line is not one."""
    with _missing_is_damage(path), path.open("rb") as file:
        entry = parsed(file.readline(_BLOCK).removesuffix(b"\n"))
    return entry if entry and entry["previous"] == GENESIS else {}


def read_tail(path: Path, head: str) -> Tail | None:
    """Read a ledger's end, back to the line whose hash is `head`, and check that part's chain.

    What follows the last entry is torn: bytes of a line that never was whole on the disk. Returns
    None where there is no line `head`, or where a line after the torn bytes is whole, so that they
    cannot be the end of an unfinished commit.
    """
    with _missing_is_damage(path), path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        block = _BLOCK
        while True:
            start = max(size - block, 0)
            file.seek(start)
            data = file.read(size - start)
            position = data.rfind(b'"hash":"%s"' % head.encode())
            begin = data.rfind(b"\n", 0, max(position, 0)) + 1
            if position >= 0 and (begin > 0 or start == 0):
                return _tail(data[begin:], start + begin)
            if start == 0:
                return None
            block *= 4


def read_last(path: Path, length: int, count: int, head: str) -> list[dict[str, Any]]:
    """Return the last `count` entries of a ledger's first `length` bytes, checked back from `head`.

    Only the end of the file is read.
    """
    data, start, block = b"", length, _BLOCK
    with _missing_is_damage(path), path.open("rb") as file:
        while data.count(b"\n") <= count and start > 0:
            start = max(length - block, 0)
            file.seek(start)
            data = file.read(length - start)
            block *= 4
    entries: list[dict[str, Any]] = []
    for text in reversed(data.split(b"\n")[:-1]):
        if len(entries) == count:
            break
        entry = parsed(text)
        if entry is None or entry["hash"] != head:
            break
        head = entry["previous"]
        entries.append(entry)
    if len(entries) < count:
        raise DamagedError(f"{path} is damaged: its last {count} lines do not follow one another")
    return entries[::-1]


def _tail(data: bytes, begin: int) -> Tail | None:
    *texts, torn = data.split(b"\n")
    entries: list[dict[str, Any]] = []
    length = 0
    for number, text in enumerate(texts):
        entry = parsed(text)
        if entry is None or (entries and entry["previous"] != entries[-1]["hash"]):
            if any(map(parsed, [*texts[number:], torn])):
                return None
            break
        entries.append(entry)
        length += len(text) + 1
    return Tail(entries, begin + length, len(data) - length) if entries else None


def parsed(text: bytes) -> dict[str, Any] | None:
    """Return a line's entry, or None where its bytes are not those that were hashed."""
    try:
        entry: dict[str, Any] = json.loads(text)
        # The bytes as they are, not the entry written anew, which would take far longer.
        before, _, after = text.partition(b'"hash":"%s",' % entry["hash"].encode())
        sound = hashlib.sha256(before + after).hexdigest() == entry["hash"]
        return entry if sound and "previous" in entry else None
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return None


@contextmanager
def _missing_is_damage(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise DamagedError(f"{path} is missing: the state is damaged") from None
