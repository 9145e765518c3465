"""`repair` says what is lost, keeps what it replaces, and leaves a state that verifies."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.state.faults.strike import disk_full, killed_in_child, struck
from tests.state.made_up import (
    commit,
    contents,
    create,
    generation_file,
    is_equal,
    made_up_state,
    make_state,
)
from tfrnet.core.errors import StateError
from tfrnet.core.signing import read_key
from tfrnet.method_state import verify_state
from tfrnet.state.lineage import line_in_effect, why_not_in_effect
from tfrnet.state.repair import Plan, opened_for_repair
from tfrnet.state.store import StateStore


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A state of five requests."""
    return make_state(tmp_path / "state", commits=5)


def repaired(folder: Path, key: Path | None = None) -> tuple[Plan, Path | None]:
    with opened_for_repair(folder, key) as repair:
        return repair.plan, repair.carry_out()


def assert_sound(folder: Path, key: Path | None = None) -> None:
    assert [check for check in verify_state(folder) if not check.passed] == []
    with StateStore.open(folder, write=True, key=key) as store:
        assert store.repairs == []


def flip(path: Path, position: int = -9) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def change_line(folder: Path, number: int) -> None:
    """Change a byte in the middle of a line of the ledger."""
    lines = (folder / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    middle = len(lines[number - 1]) // 2
    lines[number - 1] = lines[number - 1][:middle] + b"~" + lines[number - 1][middle + 1 :]
    (folder / "ledger.jsonl").write_bytes(b"".join(lines))


def cut_lines(folder: Path, count: int) -> None:
    lines = (folder / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "ledger.jsonl").write_bytes(b"".join(lines[:-count]))


def test_a_sound_state_is_left_alone(folder: Path) -> None:
    before = contents(folder)
    plan, aside = repaired(folder)
    assert (plan.problems, plan.lost, aside) == ((), (), None)
    assert contents(folder) == before


def test_an_interrupted_commit_is_no_damage(folder: Path) -> None:
    with (folder / "ledger.jsonl").open("ab") as file:
        file.write(b'{"kind":"req')
    assert repaired(folder)[0].problems == ()


@pytest.mark.parametrize("damage", ["missing", "garbage", "of another line"])
def test_a_lost_pointer_is_written_anew_and_nothing_is_lost(folder: Path, damage: str) -> None:
    before, pointer = contents(folder), folder / "current.json"
    if damage == "missing":
        pointer.unlink()
    else:
        pointer.write_text("garbage" if damage == "garbage" else '{"generation": 5')
    plan, aside = repaired(folder)
    assert plan.lost == ()
    assert contents(folder) == before
    assert_sound(folder)
    assert aside is not None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("head", value) for value in (7, None, ["x"], "\ud800")),
        ("generation", "1"),
        ("entries", True),
    ],
)
def test_a_pointer_of_other_types_is_damage_and_no_crash(
    folder: Path, name: str, value: object
) -> None:
    pointer = folder / "current.json"
    pointer.write_text(json.dumps(json.loads(pointer.read_text()) | {name: value}))
    with pytest.raises(StateError, match="it is not a pointer"):
        StateStore.open(folder)


def test_a_damaged_current_generation_gives_way_to_the_newest_that_holds(folder: Path) -> None:
    flip(generation_file(folder, 5))
    spoilt = generation_file(folder, 5).read_bytes()
    plan, aside = repaired(folder)
    assert plan.salvaged == 4
    assert any("request-5" in loss for loss in plan.lost)
    assert_sound(folder)
    store = StateStore.open(folder)
    assert store.generation == 6
    assert is_equal(store.load(), made_up_state(4))
    assert list(store.history.applied) == [f"request-{n}" for n in range(1, 5)]
    assert store.history.requests_seen == 5
    assert (aside / "generations" / "00000005.safetensors").read_bytes() == spoilt
    with StateStore.open(folder, write=True) as store:
        commit(store, 5)
    assert_sound(folder)


def test_damaged_old_generations_cost_rollbacks_only(folder: Path) -> None:
    flip(generation_file(folder, 2))
    plan, _ = repaired(folder)
    assert plan.lost == ("rollbacks to generations 1, 2",)
    assert_sound(folder)
    store = StateStore.open(folder)
    assert is_equal(store.load(), made_up_state(5))
    assert len(store.history.applied) == 5
    assert store.layout.numbers() == [0, 3, 4, 5, 6]


def test_a_changed_line_costs_its_own_request_and_no_later_one(folder: Path) -> None:
    """What the later lines say holds in itself, and so does the newest generation."""
    change_line(folder, 4)  # request-3
    before = (folder / "ledger.jsonl").read_bytes()
    plan, aside = repaired(folder)
    assert plan.salvaged == 5
    assert any(loss.startswith("3 lines of the ledger, from line 4 on") for loss in plan.lost)
    assert any("1 events that cannot be read" in loss for loss in plan.lost)
    assert_sound(folder)
    store = StateStore.open(folder)
    assert is_equal(store.load(), made_up_state(5))
    assert list(store.history.applied) == ["request-1", "request-2", "request-4", "request-5"]
    assert (aside / "ledger.jsonl").read_bytes() == before
    assert (folder / "ledger.jsonl").read_bytes().startswith(before[: before.index(b"~") // 2])
    assert [entry["kind"] for entry in store.entries] == ["created", "request", "request", "repair"]


def test_lines_that_are_gone_take_their_generations_along(folder: Path) -> None:
    cut_lines(folder, 2)
    plan, aside = repaired(folder)
    assert plan.salvaged == 3
    assert plan.lost[0].startswith("2 lines of the ledger, from line 5 on")
    assert_sound(folder)
    store = StateStore.open(folder)
    assert is_equal(store.load(), made_up_state(3))
    assert store.layout.numbers() == [0, 1, 2, 3, 4]
    kept = {path.name for path in (aside / "generations").iterdir()}
    assert kept == {"00000004.safetensors", "00000005.safetensors"}


def test_several_kinds_of_damage_at_once(folder: Path) -> None:
    change_line(folder, 3)
    flip(generation_file(folder, 5))
    (folder / "current.json").write_bytes(b"")
    plan, _ = repaired(folder)
    assert plan.salvaged == 4
    assert_sound(folder)
    store = StateStore.open(folder)
    assert is_equal(store.load(), made_up_state(4))
    assert list(store.history.applied) == ["request-1", "request-3", "request-4"]


def test_a_generation_that_no_line_names_goes_aside(folder: Path) -> None:
    data = generation_file(folder, 5).read_bytes()
    generation_file(folder, 6).write_bytes(b"garbage")
    generation_file(folder, 9).write_bytes(data)
    plan, aside = repaired(folder)
    assert plan.lost == ()
    assert_sound(folder)
    assert (aside / "generations" / "00000009.safetensors").read_bytes() == data


def test_rollbacks_before_and_after_a_repair(folder: Path) -> None:
    with StateStore.open(folder, write=True) as store:
        store.rollback(2)
        commit(store, 7)
    flip(generation_file(folder, 7))
    repaired(folder)
    with StateStore.open(folder, write=True) as store:
        assert list(store.history.applied) == ["request-1", "request-2"]
        assert is_equal(store.load(), made_up_state(2))
        commit(store, 8)
        store.rollback(8)  # the repair's own generation
        assert list(store.history.applied) == ["request-1", "request-2"]
        entries = store.entries
    assert line_in_effect(entries, "request-2")[0] == 3
    assert line_in_effect(entries, "request-5") is None
    assert "rolled back" in why_not_in_effect(entries, "request-5")
    assert "lost with damage" in why_not_in_effect(entries, "request-7")
    assert_sound(folder)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: flip(f / "manifest.json"), r"manifest\.json is damaged"),
        (lambda f: (f / "manifest.json").unlink(), r"manifest\.json is missing"),
        (lambda f: (f / "key").write_text("00"), "key is missing or damaged"),
        (lambda f: (f / "ledger.jsonl").unlink(), r"ledger\.jsonl is missing"),
        (lambda f: change_line(f, 1), r"ledger\.jsonl is damaged from its first line on"),
        (lambda f: flip(generation_file(f, 0)), r"00000000\.safetensors is missing or damaged"),
    ],
)
def test_what_nothing_else_holds_cannot_be_repaired(
    folder: Path, spoil: Callable[[Path], object], message: str
) -> None:
    spoil(folder)
    before = contents(folder)
    with pytest.raises(StateError, match=rf"{message}.*restore a backup") as caught:
        repaired(folder)
    assert "\n" not in str(caught.value)
    assert contents(folder) == before
    assert [path.name for path in folder.parent.iterdir()] == ["state"]


def test_what_is_replaced_is_private_and_never_overwritten(folder: Path) -> None:
    for number in (5, 6):
        flip(generation_file(folder, number))
        _, aside = repaired(folder)
        assert aside.name == f"state.before-repair-{number - 4}"
        assert stat.S_IMODE(aside.stat().st_mode) == 0o700
    assert_sound(folder)


def test_what_is_kept_aside_does_not_change_later(folder: Path) -> None:
    (folder / "current.json").unlink()
    _, aside = repaired(folder)
    before = contents(aside)
    with StateStore.open(folder, write=True) as store:
        commit(store, 6)
    assert contents(aside) == before


def test_what_is_newer_than_an_older_ledger_is_put_aside(tmp_path: Path) -> None:
    folder = make_state(tmp_path / "state", commits=2)
    older = {name: (folder / name).read_bytes() for name in ("ledger.jsonl", "current.json")}
    with StateStore.open(folder, write=True) as store:
        for number in (3, 4, 5):
            commit(store, number)
    newer = {n: generation_file(folder, n).read_bytes() for n in (3, 4, 5)}
    for name, data in older.items():
        (folder / name).write_bytes(data)
    plan, aside = repaired(folder)
    assert len(plan.problems) == 3
    assert aside is not None
    assert {n: generation_file(aside, n).read_bytes() for n in newer} == newer
    assert_sound(folder)
    assert StateStore.open(folder).generation == 2


def spoil(folder: Path) -> None:
    change_line(folder, 4)
    flip(generation_file(folder, 5))


def test_a_full_disk_changes_nothing(folder: Path, tmp_path: Path) -> None:
    spoil(folder)
    before = contents(folder)
    other = make_spoilt(tmp_path / "other")
    with struck(-1, False, disk_full) as seen:
        repaired(other)
    # All that takes space comes before the first rename.
    writes = [number for number, name in enumerate(seen) if name == "write"]
    assert len(writes) == 5
    for number in writes:
        for half in (False, True):
            with (
                struck(number, half, disk_full),
                pytest.raises(StateError, match="cannot be repaired: No space left on device"),
            ):
                repaired(folder)
            assert contents(folder) == before
            assert not list(tmp_path.glob("state.before*"))
    repaired(folder)
    assert_sound(folder)


def make_spoilt(folder: Path) -> Path:
    make_state(folder, commits=5)
    spoil(folder)
    return folder


@pytest.mark.slow
def test_a_repair_that_is_killed_anywhere_is_done_by_the_next(tmp_path: Path) -> None:
    expected = make_spoilt(tmp_path / "whole")
    repaired(expected)
    number, done = 0, False
    while not done:
        folder = make_spoilt(tmp_path / str(number))
        done = not killed_in_child(lambda folder=folder: repaired(folder), number)
        repaired(folder)
        # What the kill kept from being removed looks like an unfinished commit, and goes as such.
        StateStore.open(folder, write=True).close()
        assert_sound(folder)
        store, whole = StateStore.open(folder), StateStore.open(expected)
        assert store.generation == whole.generation
        assert is_equal(store.load(), whole.load())
        assert store.history.applied == whole.history.applied
        assert [e["kind"] for e in store.entries] == [e["kind"] for e in whole.entries]
        number += 1
    assert number > 15


# Signed states


def test_a_signed_state_is_repaired_with_its_key_alone(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    folder = make_state(tmp_path / "state", commits=4, key=key)
    change_line(folder, 3)
    before = contents(folder)
    with pytest.raises(StateError, match="is signed by key"):
        repaired(folder)
    assert contents(folder) == before
    repaired(folder, key)
    assert_sound(folder, key)
    last = StateStore.open(folder).entries[-1]
    assert last["signer"] == read_key(key).public.text


def test_later_lines_of_a_signed_state_count_only_with_its_signature(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    folder = make_state(tmp_path / "state", commits=2, key=key)
    forged = make_state(tmp_path / "forged", commits=4)
    lines = (forged / "ledger.jsonl").read_bytes().splitlines(keepends=True)[3:]
    with (folder / "ledger.jsonl").open("ab") as file:
        file.write(b"a damaged line\n" + b"".join(lines))
    for number in (3, 4):
        data = generation_file(forged, number).read_bytes()
        generation_file(folder, number).write_bytes(data)
    (folder / "current.json").unlink()
    plan, _ = repaired(folder, key)
    assert plan.salvaged == 2
    store = StateStore.open(folder)
    assert list(store.history.applied) == ["request-1", "request-2"]
    assert is_equal(store.load(), made_up_state(2))
    assert_sound(folder, key)


def test_a_state_in_use_is_not_repaired(folder: Path) -> None:
    with create(folder.with_name("busy")) as store:
        (store.layout.folder / "current.json").unlink()
        with pytest.raises(StateError, match="in use by this process"):
            repaired(store.layout.folder)


def test_a_repaired_state_is_backed_up_and_its_line_is_json(folder: Path) -> None:
    flip(generation_file(folder, 5))
    repaired(folder)
    last = json.loads((folder / "ledger.jsonl").read_text().splitlines()[-1])
    assert (last["kind"], last["salvaged"], last["generation"]) == ("repair", 4, 6)
