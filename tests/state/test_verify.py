"""`verify` finds whatever was changed or lost in a state, names it, and changes nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.state.made_up import (
    commit,
    contents,
    create,
    made_up_state,
    make_state,
)
from tests.state.made_up import generation_file as generation_path
from tfrnet.core.tensors import TensorState, tensors_file
from tfrnet.method_state import verify_state
from tfrnet.methods.tfr.state import ChannelState
from tfrnet.state import generation_file, ledger
from tfrnet.state.check import Check
from tfrnet.state.store import StateStore


def failures(folder: Path) -> list[Check]:
    return [check for check in verify_state(folder) if not check.passed]


def test_a_sound_state_passes_every_check_and_stays_as_it_is(folder: Path) -> None:
    before = contents(folder)
    checks = verify_state(folder)
    assert all(check.passed for check in checks)
    names = [check.name for check in checks]
    assert [f"generation {number}" for number in range(4)] == names[-4:]
    assert contents(folder) == before


def test_verify_works_while_another_process_writes(folder: Path) -> None:
    with StateStore.open(folder, write=True):
        assert failures(folder) == []


@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_flipped_bit_in_any_generation_is_found_in_that_one_only(
    folder: Path, number: int
) -> None:
    path = generation_path(folder, number)
    data = bytearray(path.read_bytes())
    data[-9] ^= 1
    path.write_bytes(data)
    (failed,) = failures(folder)
    assert failed.name == f"generation {number}"
    assert str(path) in failed.detail
    assert "digest" in failed.detail


def test_a_flipped_bit_in_header_or_values_of_a_generation_is_found(folder: Path) -> None:
    path = generation_path(folder, 2)
    data = path.read_bytes()
    header_after_metadata = data.index(b'"hits"')
    unnoticed = []
    for position in [*range(8), *range(header_after_metadata, len(data), 7)]:
        path.write_bytes(data[:position] + bytes([data[position] ^ 4]) + data[position + 1 :])
        if [check.name for check in failures(folder)] != ["generation 2"]:
            unnoticed.append(position)
    assert unnoticed == []


@pytest.mark.parametrize("name", ["manifest.json", "key", "current.json", "ledger.jsonl"])
def test_a_flipped_bit_anywhere_in_a_small_file_is_found(folder: Path, name: str) -> None:
    path = folder / name
    data = path.read_bytes()
    unnoticed = []
    for position in range(0, len(data), max(1, len(data) // 150)):
        # Changes a digit into another digit and a letter into another letter.
        path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        if not failures(folder):
            unnoticed.append((position, data[max(position - 12, 0) : position + 1]))
    assert unnoticed == []


@pytest.mark.parametrize("name", ["manifest.json", "key", "current.json", "ledger.jsonl"])
@pytest.mark.parametrize("damage", ["missing", "emptied", "halved"])
def test_a_lost_file_is_named(folder: Path, name: str, damage: str) -> None:
    path = folder / name
    data = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes(data[: len(data) // 2] if damage == "halved" else b"")
    failed = failures(folder)
    assert failed
    assert any(name in check.detail for check in failed)


@pytest.mark.parametrize("number", [0, 2, 3])
def test_a_lost_generation_is_named(folder: Path, number: int) -> None:
    """Pruning leaves generation 0 and an unbroken row of the newest: a gap is a loss."""
    path = generation_path(folder, number)
    path.unlink()
    failed = failures(folder)
    assert failed
    assert any(path.name in check.detail for check in failed)


def test_a_generation_that_no_line_knows_is_found(folder: Path) -> None:
    generation_path(folder, 7).write_bytes(generation_path(folder, 3).read_bytes())
    (failed,) = failures(folder)
    assert "not in the ledger" in failed.detail


def test_a_tensor_that_does_not_belong_is_found(folder: Path) -> None:
    path = generation_path(folder, 3)
    save_file(load_file(path) | {"secret": torch.zeros(12)}, path)
    assert failures(folder)


@pytest.mark.parametrize(
    ("name", "value", "detail"),
    [
        ("mask", torch.full((12,), 1.5), "leaves"),
        ("mask", torch.full((12,), float("nan")), "not finite"),
        ("risk", torch.full((12,), float("inf")), "not finite"),
        ("hits", torch.zeros(11), "not 12 floats"),
        ("risk", torch.zeros(12, dtype=torch.float64), "not 12 floats"),
        ("forgotten_falls", torch.ones(3), "not 0 floats"),
    ],
)
def test_values_that_no_request_leaves_are_found_even_with_a_matching_digest(
    folder: Path, name: str, value: torch.Tensor, detail: str
) -> None:
    """Someone who can write everything can forge the ledger too; nonsense is still refused."""
    state = ChannelState.from_tensors(made_up_state(3).tensors() | {name: value})
    save_file(state.tensors(), generation_path(folder, 3))
    entries = ledger.read(folder / "ledger.jsonl").entries
    last = {k: v for k, v in entries[-1].items() if k not in ("hash", "previous")}
    forged = ledger.chained(last | {"state_after": state.digest()}, entries[-2]["hash"])
    lines = b"".join(map(ledger.line, [*entries[:-1], forged]))
    (folder / "ledger.jsonl").write_bytes(lines)
    pointer = {"generation": 3, "entries": 4, "head": forged["hash"]}
    (folder / "current.json").write_text(json.dumps(pointer))
    (failed,) = failures(folder)
    assert failed.name == "generation 3"
    assert detail in failed.detail


def test_an_unfinished_commit_is_no_damage_and_is_said(folder: Path) -> None:
    generation_file.write(generation_path(folder, 4), made_up_state(4), 4)
    with (folder / "ledger.jsonl").open("ab") as file:
        file.write(b'{"kind":"req')
    checks = verify_state(folder)
    assert all(check.passed for check in checks)
    assert "unfinished commit" in checks[0].detail
    assert "unfinished commit" in checks[-1].detail


@pytest.mark.parametrize("content", ["garbage", "an older generation", "other tensors"])
def test_a_next_generation_that_no_commit_leaves_is_found(folder: Path, content: str) -> None:
    """A file gets its name when it is whole, so that half of one is no unfinished commit."""
    path = generation_path(folder, 4)
    if content == "garbage":
        path.write_bytes(b"half of a genera")
    elif content == "an older generation":
        path.write_bytes(generation_path(folder, 3).read_bytes())
    else:
        state = TensorState({"mask": torch.ones(3)})
        generation_file.write(path, state, 4)
    (failed,) = failures(folder)
    assert failed.name == "generation 4"
    assert path.name in failed.detail


def test_a_key_in_capitals_is_found(folder: Path) -> None:
    """It would decode to the same bytes: a file that was changed all the same."""
    key = folder / "key"
    key.write_text(key.read_text().upper())
    assert [check.name for check in failures(folder)] == ["key"]


@pytest.mark.parametrize(
    "facts",
    [
        {"format": "tfrnet-state-1", "generation": "3"},
        {"format": "tfrnet-state-1", "generation": "2", "note": "hello"},
        {"format": "tfrnet-state-2", "generation": "2"},
        {"generation": "2"},
        {},
    ],
)
def test_changed_facts_beside_the_tensors_are_found(folder: Path, facts: dict) -> None:
    path = generation_path(folder, 2)
    path.write_bytes(tensors_file(made_up_state(2).tensors(), facts))
    (failed,) = failures(folder)
    assert failed.name == "generation 2"
    assert "header" in failed.detail


@pytest.mark.parametrize(("keep", "oldest"), [(20, 1), (2, 2)])
def test_a_lost_oldest_generation_is_told_from_a_pruned_one(
    tmp_path: Path, keep: int, oldest: int
) -> None:
    with create(tmp_path / "state") as store:
        for number in (1, 2, 3):
            commit(store, number, keep=keep)
    assert failures(tmp_path / "state") == []
    path = generation_path(tmp_path / "state", oldest)
    path.unlink()
    (failed,) = failures(tmp_path / "state")
    assert path.name in failed.detail


def test_a_state_is_for_its_owner_alone_and_verify_says_where_the_key_is(
    tmp_path: Path,
) -> None:
    before = os.umask(0)
    try:
        folder = make_state(tmp_path / "above" / "state")
        with StateStore.open(folder, write=True) as store:
            commit(store, 4)
    finally:
        os.umask(before)
    modes = {path: path.stat().st_mode & 0o777 for path in (folder, *folder.rglob("*"))}
    assert {modes[folder], modes[folder / "generations"]} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}
    checks = {check.name: check for check in verify_state(folder)}
    assert str(folder / "key") in checks["key"].detail
    assert checks["file modes"].detail == "for their owner alone"


def test_verify_says_what_other_users_can_read(folder: Path) -> None:
    generation_path(folder, 2).chmod(0o644)
    (check,) = [check for check in verify_state(folder) if check.name == "file modes"]
    assert check.passed
    assert "open to other users: 1 of" in check.detail
    assert "00000002.safetensors" in check.detail
