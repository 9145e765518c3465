"""What an interrupted commit leaves, and what opening makes of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.state.made_up import (
    commit,
    contents,
    generation_file,
    is_equal,
    made_up_state,
)
from tfrnet.core.errors import DamagedError, StateError
from tfrnet.method_state import verify_state
from tfrnet.state.store import StateStore


def _without_last_commit(folder: Path, *names: str) -> None:
    """Put the named files back to what they were before the last commit, as a crash leaves them."""
    lines = (folder / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    if "ledger" in names:
        (folder / "ledger.jsonl").write_bytes(b"".join(lines[:-1]))
    if "pointer" in names:
        head = json.loads(lines[-2])["hash"]
        pointer = {"generation": 2, "entries": len(lines) - 1, "head": head}
        (folder / "current.json").write_text(json.dumps(pointer))


@pytest.mark.parametrize("torn", [b"{", b'{"kind":"request","id":"request-4","gener'])
def test_a_torn_last_line_is_cut_off_on_opening_for_writing_and_said(
    folder: Path, torn: bytes
) -> None:
    whole = (folder / "ledger.jsonl").read_bytes()
    (folder / "ledger.jsonl").write_bytes(whole + torn)
    with StateStore.open(folder, write=True) as store:
        assert len(store.repairs) == 1
        assert "torn last line" in store.repairs[0]
        assert f"{len(torn)} bytes" in store.repairs[0]
        assert (folder / "ledger.jsonl").read_bytes() == whole
        commit(store, 4)
    assert all(check.passed for check in verify_state(folder))
    assert StateStore.open(folder, write=True).repairs == []


def _torn(line: bytes, what: str) -> bytes:
    """What a power cut can leave of an appended line whose last sector alone reached the disk."""
    if what == "zeros and the line end":
        return bytes(len(line) - 1) + b"\n"
    if what == "an older file's bytes":  # some file systems show what a sector held before
        return b'\xfe{"a"\n\n"b"}\r\n' + line[20:]
    if what == "its beginning is missing":
        return bytes(len(line) // 2) + line[len(line) // 2 :]
    return line[: len(line) // 3] + bytes(len(line) // 3) + line[2 * (len(line) // 3) :]


@pytest.mark.parametrize(
    "what",
    [
        "zeros and the line end",
        "an older file's bytes",
        "its beginning is missing",
        "its middle is missing",
    ],
)
def test_a_last_line_with_an_end_that_was_never_committed_is_cut_off(
    folder: Path, what: str
) -> None:
    """The pointer names the line before, so the sync of this one never returned."""
    path = folder / "ledger.jsonl"
    whole = path.read_bytes().splitlines(keepends=True)
    _without_last_commit(folder, "pointer")
    path.write_bytes(b"".join(whole[:-1]) + _torn(whole[-1], what))
    before = contents(folder)
    assert is_equal(StateStore.open(folder).load(), made_up_state(2))
    assert all(check.passed for check in verify_state(folder))
    assert contents(folder) == before
    with StateStore.open(folder, write=True) as store:
        assert "torn last line" in store.repairs[0]
        assert is_equal(store.load(), made_up_state(2))
        commit(store, 3)
    assert all(check.passed for check in verify_state(folder))


@pytest.mark.parametrize("line", [1, 2, 3])
def test_the_same_bytes_in_a_committed_line_are_damage(folder: Path, line: int) -> None:
    path = folder / "ledger.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[line] = bytes(len(lines[line]) - 1) + b"\n"
    path.write_bytes(b"".join(lines))
    assert not all(check.passed for check in verify_state(folder))
    if line == 3:
        with pytest.raises(StateError, match=r"ledger\.jsonl is damaged: line 4"):
            StateStore.open(folder, write=True)


def test_a_torn_last_line_is_left_alone_when_opened_for_reading(folder: Path) -> None:
    with (folder / "ledger.jsonl").open("ab") as file:
        file.write(b'{"kind":')
    before = contents(folder)
    store = StateStore.open(folder)
    assert store.generation == 3
    assert store.repairs == []
    assert contents(folder) == before


def test_a_generation_without_a_ledger_line_is_removed(folder: Path) -> None:
    _without_last_commit(folder, "ledger", "pointer")
    before = contents(folder)
    assert is_equal(StateStore.open(folder).load(), made_up_state(2))
    assert contents(folder) == before
    with StateStore.open(folder, write=True) as store:
        assert store.repairs == ["removed unfinished generation 3"]
        assert not generation_file(folder, 3).exists()
        assert is_equal(store.load(), made_up_state(2))
        assert "request-3" not in store.history.applied
    assert all(check.passed for check in verify_state(folder))


def test_generations_that_no_cut_off_commit_leaves_are_not_removed(folder: Path) -> None:
    """An older ledger was put back: what is newer than it may be all that is left."""
    older = {name: (folder / name).read_bytes() for name in ("ledger.jsonl", "current.json")}
    with StateStore.open(folder, write=True) as store:
        commit(store, 4)
        commit(store, 5)
    for name, data in older.items():
        (folder / name).write_bytes(data)
    before = contents(folder)
    with pytest.raises(DamagedError, match=r"ends with generation 3, but there is 00000005\."):
        StateStore.open(folder, write=True)
    assert contents(folder) == before
    assert StateStore.open(folder).generation == 3
    assert not all(check.passed for check in verify_state(folder))


def test_a_ledger_line_that_the_pointer_does_not_know_is_carried_over(folder: Path) -> None:
    finished = json.loads((folder / "current.json").read_text())
    _without_last_commit(folder, "pointer")
    assert StateStore.open(folder).generation == 3
    with StateStore.open(folder, write=True) as store:
        assert store.repairs == ["finished the commit of generation 3"]
        assert is_equal(store.load(), made_up_state(3))
        assert "request-3" in store.history.applied
    assert json.loads((folder / "current.json").read_text()) == finished


def test_temporary_files_of_a_crash_are_removed(folder: Path) -> None:
    leftovers = [folder / ".current.json.partial", folder / "generations" / ".4.partial"]
    for path in leftovers:
        path.write_bytes(b"half")
    StateStore.open(folder).close()
    assert all(path.exists() for path in leftovers)
    StateStore.open(folder, write=True).close()
    assert not any(path.exists() for path in leftovers)
