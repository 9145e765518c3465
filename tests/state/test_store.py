"""A state folder: what is in it, what is kept, and how it returns to what it was."""

from __future__ import annotations

import itertools
import json
import tracemalloc
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests import tiny
from tests.state.made_up import (
    CHANNELS,
    PAPER_TENSORS,
    commit,
    contents,
    create,
    generation_file,
    is_equal,
    made_up_state,
    make_state,
)
from tfrnet.core.errors import StateError
from tfrnet.method_state import verify_state
from tfrnet.methods.tfr.config import TFRConfig
from tfrnet.methods.tfr.presets import FISHER
from tfrnet.methods.tfr.state import ChannelState
from tfrnet.session import Session
from tfrnet.state.store import StateStore

# What is in the folder


def test_a_new_state_holds_manifest_key_ledger_pointer_and_generation_zero(tmp_path: Path) -> None:
    create(tmp_path / "state").close()
    assert set(contents(tmp_path / "state")) == {
        "manifest.json",
        "key",
        "ledger.jsonl",
        "current.json",
        "generations/00000000.safetensors",
    }


def test_commits_are_numbered_generations_that_come_back_bit_for_bit(folder: Path) -> None:
    names = sorted(path.name for path in (folder / "generations").iterdir())
    assert names == [f"{number:08d}.safetensors" for number in range(4)]
    store = StateStore.open(folder)
    assert store.generation == 3
    assert is_equal(store.load(), made_up_state(3))
    for number in (1, 2, 3):
        assert is_equal(store.load(number), made_up_state(number))
    assert is_equal(store.load(0), ChannelState.initial(CHANNELS, with_fisher=False))


def test_a_rejected_request_is_a_ledger_line_and_nothing_else(folder: Path) -> None:
    before = contents(folder)
    with StateStore.open(folder, write=True) as store:
        commit(store, 4, accepted=False)
        assert store.generation == 3
    after = contents(folder)
    assert {name for name in after if after[name] != before.get(name)} == {
        "ledger.jsonl",
        "current.json",
    }
    last = json.loads(after["ledger.jsonl"].splitlines()[-1])
    assert (last["id"], last["outcome"], last["generation"]) == ("request-4", "rejected", 3)
    assert last["state_before"] == last["state_after"]


def test_a_long_ledger_is_not_held_in_memory(folder: Path) -> None:
    record = {"outcome": "rejected", "request_digest": "d" * 64, "channels": list(range(2000))}
    with StateStore.open(folder, write=True) as store:
        store.commit(record | {"id": "first"}, None)
        tracemalloc.start()
        for number in range(50):
            store.commit(record | {"id": f"another-{number}"}, None)
        grown, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        # A line alone has 10 KB.
        assert grown / 50 < 2000
        assert [entry["id"] for entry in store.entries[-50:]] == [f"another-{n}" for n in range(50)]
        assert store.lines == len(store.entries) == 55


def test_entries_are_those_that_a_store_knows_of(folder: Path) -> None:
    reader = StateStore.open(folder)
    with StateStore.open(folder, write=True) as store:
        commit(store, 4)
        assert len(store.entries) == len(reader.entries) + 1 == 5


def test_each_line_says_which_state_it_led_from_and_to(folder: Path) -> None:
    entries = StateStore.open(folder).entries
    for before, after in itertools.pairwise(entries):
        assert after["state_before"] == before["state_after"] != after["state_after"]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (TFRConfig.paper(guard_examples=4), PAPER_TENSORS),
        (TFRConfig.from_dict(FISHER | {"guard_examples": 4}), PAPER_TENSORS | {"fisher"}),
        (tiny.deep(guard_examples=4), PAPER_TENSORS | {"fisher", "forgotten"}),
        (TFRConfig(guard_examples=4), PAPER_TENSORS | {"fisher", "forgotten"}),
    ],
    ids=["paper", "fisher", "deep", "default"],
)
def test_tensors_have_their_public_names_and_are_float32_over_the_channels(
    tmp_path: Path, tokenizer, config: TFRConfig, expected: set[str]
) -> None:
    model, (request,) = tiny.make_model("llama"), tiny.requests(1)
    with Session(model, tokenizer, tmp_path / "s", tiny.examples(6), config=config) as session:
        session.forget(request)
    # Per layer: q 32, k 16, v 16, o 32, gate 48, up 48, down 32; three layers.
    for number in (0, 1):
        tensors = load_file(generation_file(tmp_path / "s", number))
        assert set(tensors) == expected
        assert {tensor.dtype for tensor in tensors.values()} == {torch.float32}
        if "forgotten" in tensors:
            rows, width = tensors.pop("forgotten").shape
            assert width == 3 * 224
            assert rows <= number * len(request.examples)
        assert {tuple(tensor.shape) for tensor in tensors.values()} == {(3 * 224,)}


def test_nothing_in_a_state_is_a_pickle(folder: Path) -> None:
    for name, data in contents(folder).items():
        assert name == "key" or name.endswith((".json", ".jsonl", ".safetensors"))
        # A pickle begins with its protocol, a torch file with a zip's magic number.
        assert not data.startswith((b"\x80", b"PK")), name


def test_the_key_is_for_its_owner_only_and_new_for_each_state(tmp_path: Path, folder: Path) -> None:
    assert (folder / "key").stat().st_mode & 0o777 == 0o600
    other = make_state(tmp_path / "other", commits=0)
    assert StateStore.open(other).key() != StateStore.open(folder).key()
    assert len(StateStore.open(folder).key()) == 32


def test_a_folder_with_other_files_is_not_taken_over(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("mine")
    with pytest.raises(StateError, match=r"other files \(letters.txt\)"):
        create(tmp_path)
    assert (tmp_path / "letters.txt").read_text() == "mine"


def test_a_state_is_not_made_over_another(folder: Path) -> None:
    before = contents(folder)
    with pytest.raises(StateError, match="holds a state already"):
        create(folder)
    assert contents(folder) == before


def test_opening_what_is_no_state_says_so(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="holds no state"):
        StateStore.open(tmp_path)


def test_reading_changes_nothing_and_cannot_commit(folder: Path) -> None:
    before = contents(folder)
    store = StateStore.open(folder)
    with pytest.raises(StateError, match="opened for writing"):
        commit(store, 4)
    assert contents(folder) == before


# Keeping and returning


@pytest.mark.parametrize(("keep", "kept"), [(1, [0, 6]), (2, [0, 5, 6]), (20, list(range(7)))])
def test_pruning_keeps_generation_zero_and_the_newest(
    tmp_path: Path, keep: int, kept: list[int]
) -> None:
    with create(tmp_path) as store:
        for number in range(1, 7):
            commit(store, number, keep=keep)
        assert store.layout.numbers() == kept
        assert is_equal(store.load(), made_up_state(6))
    assert all(check.passed for check in verify_state(tmp_path))


def test_returning_to_a_pruned_generation_names_those_there_are(tmp_path: Path) -> None:
    with create(tmp_path) as store:
        for number in (1, 2, 3):
            commit(store, number, keep=1)
        with pytest.raises(StateError, match="generation 2 is no longer kept; choose from 0, 3"):
            store.rollback(2)
        with pytest.raises(StateError, match="generation 9 has never existed"):
            store.rollback(9)
        assert len(store.entries) == 4


def test_rollback_appends_a_line_and_makes_the_old_state_the_newest(folder: Path) -> None:
    lines = (folder / "ledger.jsonl").read_bytes()
    with StateStore.open(folder, write=True) as store:
        store.rollback(1)
        assert store.generation == 4
        assert is_equal(store.load(), made_up_state(1))
        assert is_equal(store.load(3), made_up_state(3))  # nothing is erased
        assert set(store.history.applied) == {"request-1"}
    after = (folder / "ledger.jsonl").read_bytes()
    assert after.startswith(lines)
    last = json.loads(after[len(lines) :])
    assert (last["kind"], last["to"], last["generation"]) == ("rollback", 1, 4)
    one, four = (load_file(generation_file(folder, number)) for number in (1, 4))
    assert all(torch.equal(one[name], four[name]) for name in PAPER_TENSORS)


def test_undone_requests_can_be_applied_again_and_a_rollback_undone(folder: Path) -> None:
    with StateStore.open(folder, write=True) as store:
        store.rollback(1)
        commit(store, 2)
        assert set(store.history.applied) == {"request-1", "request-2"}
        store.rollback(3)
        assert set(store.history.applied) == {"request-1", "request-2", "request-3"}
        assert is_equal(store.load(), made_up_state(3))
        store.rollback(0)
        assert store.history.applied == {}
    assert all(check.passed for check in verify_state(folder))


def test_without_a_word_on_it_no_more_is_thrown_away_than_before(tmp_path: Path) -> None:
    folder = make_state(tmp_path / "state", commits=0)
    with StateStore.open(folder, write=True) as store:
        for number in range(1, 26):
            commit(store, number, keep=100)
        store.rollback(3)
        assert store.layout.numbers() == [0, *range(2, 27)]
        store.rollback(5, keep=2)
        assert store.layout.numbers() == [0, 26, 27]


def test_a_stray_file_among_the_generations_is_left_alone(folder: Path) -> None:
    stray = folder / "generations" / "00000001 copy.safetensors"
    stray.write_bytes(b"mine")
    with StateStore.open(folder, write=True) as store:
        commit(store, 4)
        assert store.layout.numbers() == [0, 1, 2, 3, 4]
    assert stray.read_bytes() == b"mine"
