"""The ledger's chain: whatever is done to a line is found, and only a torn end is forgiven."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from tfrnet.core.errors import StateError
from tfrnet.state import ledger

ENTRIES = [
    {"kind": "created", "generation": 0},
    {"kind": "request", "id": "first é", "generation": 1, "loss": 0.30000000000000004},
    {"kind": "request", "id": "second", "generation": 2, "loss": 1.5e-07, "reason": None},
    {"kind": "rollback", "to": 1, "generation": 3},
]


class _InMemory(SimpleNamespace):
    """A file's content without the file: thousands of them are tried."""

    def __init__(self, data: bytes) -> None:
        super().__init__(read_bytes=lambda: data)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger of four lines."""
    file = tmp_path / "ledger.jsonl"
    file.touch()
    previous = ledger.GENESIS
    for entry in ENTRIES:
        chained = ledger.chained(entry, previous)
        ledger.append(file, chained)
        previous = chained["hash"]
    return file


def test_entries_come_back_as_they_were_written(path: Path) -> None:
    content = ledger.read(path)
    bare = [{k: v for k, v in e.items() if k not in ("hash", "previous")} for e in content.entries]
    assert bare == ENTRIES
    assert content.torn_bytes == 0
    assert content.whole_bytes == path.stat().st_size


def test_each_line_holds_the_sha256_of_the_line_before_it(path: Path) -> None:
    previous = "0" * 64
    for text in path.read_text().splitlines():
        entry = json.loads(text)
        assert entry["previous"] == previous
        found = entry.pop("hash")
        body = json.dumps(entry, sort_keys=True, separators=(",", ":")).encode()
        assert found == hashlib.sha256(body).hexdigest()
        previous = found
    assert ledger.read(path).head == previous


def test_every_flipped_bit_of_every_byte_is_found(path: Path) -> None:
    data = path.read_bytes()
    unnoticed = []
    # Without its very last byte the last line counts as torn, which the pointer then shows.
    for position in range(len(data) - 1):
        for bit in range(8):
            changed = bytearray(data)
            changed[position] ^= 1 << bit
            try:
                ledger.read(_InMemory(bytes(changed)))
            except StateError:
                continue
            unnoticed.append((position, bytes(changed[max(position - 8, 0) : position + 8])))
    assert unnoticed == []


@pytest.mark.parametrize("replacement", [b"\r", b"\r\n", b"\n\n", b" \n"])
def test_a_changed_line_end_is_found(path: Path, replacement: bytes) -> None:
    path.write_bytes(path.read_bytes().replace(b"\n", replacement, 1))
    with pytest.raises(StateError, match=r"line 1 |line 2 "):
        ledger.read(path)


@pytest.mark.parametrize("line", [1, 2, 3])
def test_a_removed_line_is_found(path: Path, line: int) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    del lines[line - 1]
    path.write_bytes(b"".join(lines))
    with pytest.raises(StateError, match=f"{path} is damaged: line {line} "):
        ledger.read(path)


@pytest.mark.parametrize(("one", "other"), [(1, 2), (2, 3), (3, 4), (2, 4)])
def test_swapped_lines_are_found(path: Path, one: int, other: int) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    lines[one - 1], lines[other - 1] = lines[other - 1], lines[one - 1]
    path.write_bytes(b"".join(lines))
    with pytest.raises(StateError, match=f"line {one} "):
        ledger.read(path)


@pytest.mark.parametrize("line", [1, 2, 4])
@pytest.mark.parametrize("kind", ["copy", "forged", "empty", "not an object"])
def test_an_inserted_line_is_found(path: Path, line: int, kind: str) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    inserted = {
        "copy": lines[line - 1],
        # Correctly chained to its predecessor; the next line then is not.
        "forged": ledger.line(
            ledger.chained({"kind": "forged"}, json.loads(lines[line - 1])["previous"])
        ),
        "empty": b"\n",
        "not an object": b"7\n",
    }[kind]
    lines.insert(line - 1, inserted)
    path.write_bytes(b"".join(lines))
    with pytest.raises(StateError, match=r"line [1-5] does not follow"):
        ledger.read(path)


@pytest.mark.parametrize("cut", [1, 2, 20, 100])
def test_a_last_line_without_an_end_is_torn_and_the_rest_stands(path: Path, cut: int) -> None:
    data = path.read_bytes()
    last = data.splitlines(keepends=True)[-1]
    path.write_bytes(data[:-cut])
    content = ledger.read(path)
    assert len(content.entries) == len(ENTRIES) - 1
    assert content.torn_bytes == len(last) - cut
    assert content.whole_bytes == len(data) - len(last)


def test_a_missing_ledger_is_named(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"ledger\.jsonl is missing"):
        ledger.read(tmp_path / "ledger.jsonl")


def test_a_number_that_is_not_finite_is_never_written() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        ledger.chained({"loss": float("nan")}, ledger.GENESIS)


@pytest.mark.parametrize("block", [1, 200, 1 << 16])
def test_the_last_lines_are_read_from_the_end(
    path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(ledger, "_BLOCK", block)
    whole = ledger.read(path)
    with path.open("ab") as file:
        file.write(b'{"a line that is not whole')
    for count in range(len(ENTRIES) + 1):
        last = ledger.read_last(path, whole.whole_bytes, count, whole.head)
        assert last == whole.entries[len(ENTRIES) - count :]
    with pytest.raises(StateError, match="its last 5 lines"):
        ledger.read_last(path, whole.whole_bytes, 5, whole.head)
    path.write_bytes(path.read_bytes().replace(b"second", b"sekond"))
    assert len(ledger.read_last(path, whole.whole_bytes, 1, whole.head)) == 1
    with pytest.raises(StateError, match="its last 2 lines"):
        ledger.read_last(path, whole.whole_bytes, 2, whole.head)
