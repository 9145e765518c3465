"""A state folder: what is in it, what an interrupted commit leaves, and what is refused."""

from __future__ import annotations

import itertools
import json
import os
import re
import tracemalloc
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests import tiny
from tfrnet.config import FISHER, TFRConfig
from tfrnet.errors import StateError
from tfrnet.session import Session
from tfrnet.state.apply import apply_state
from tfrnet.state.manifest import Manifest
from tfrnet.state.store import StateStore
from tfrnet.state.verify import verify
from tfrnet.tfr.memory import ChannelState

CHANNELS = 12
PAPER_TENSORS = {"mask", "risk", "velocity", "variance", "hits", "priority"}


def made_up_state(number: int) -> ChannelState:
    """A state that differs for every number."""
    generator = torch.Generator().manual_seed(number)
    initial = ChannelState.initial(CHANNELS, with_fisher=False)
    return ChannelState.from_tensors(
        {name: torch.rand(CHANNELS, generator=generator) for name in initial.tensors()}
    )


def make_manifest(key: bytes) -> Manifest:
    config = TFRConfig.paper().to_dict()
    return Manifest("a model", "f" * 64, config, [["a", 8], ["b", 4]], seed=0, guard=[])


def create(folder: Path) -> StateStore:
    initial = ChannelState.initial(CHANNELS, with_fisher=False)
    return StateStore.create(folder, make_manifest, initial)


def commit(store: StateStore, number: int, accepted: bool = True, keep: int = 20) -> dict:
    record = {
        "id": f"request-{number}",
        "outcome": "accepted" if accepted else "rejected",
        "request_digest": f"{number:064d}",
    }
    return store.commit(record, made_up_state(number) if accepted else None, keep)


def make_state(folder: Path, commits: int = 3, first: int = 1) -> Path:
    """Make a closed state of that many accepted requests."""
    with create(folder) as store:
        for number in range(first, first + commits):
            commit(store, number)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """Every file but the lock, byte for byte."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != "lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def generation_file(folder: Path, number: int) -> Path:
    return folder / "generations" / f"{number:08d}.safetensors"


def is_equal(left: ChannelState, right: ChannelState) -> bool:
    """Whether every tensor is the same, bit for bit."""
    one, other = left.tensors(), right.tensors()
    return one.keys() == other.keys() and all(
        one[name].numpy().tobytes() == other[name].numpy().tobytes() for name in one
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A closed state after three accepted requests."""
    return make_state(tmp_path / "state")


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
        (TFRConfig(guard_examples=4), PAPER_TENSORS | {"fisher", "forgotten"}),
    ],
    ids=["paper", "fisher", "default"],
)
def test_tensors_have_their_public_names_and_are_float32_over_the_channels(
    tmp_path: Path, tokenizer, config: TFRConfig, expected: set[str]
) -> None:
    model = tiny.make_model("llama")
    with Session(model, tokenizer, tmp_path / "s", tiny.examples(6), config=config) as session:
        session.forget(tiny.requests(1)[0])
    # Per layer: q 32, k 16, v 16, o 32, gate 48, up 48, down 32; three layers.
    for number in (0, 1):
        tensors = load_file(generation_file(tmp_path / "s", number))
        assert set(tensors) == expected
        assert {tensor.dtype for tensor in tensors.values()} == {torch.float32}
        remembered = tensors.pop("forgotten", torch.zeros(32, 3 * 224))
        assert remembered.shape == (32, 3 * 224)
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
    assert all(check.passed for check in verify(tmp_path))


def test_returning_to_a_pruned_generation_names_those_there_are(tmp_path: Path) -> None:
    with create(tmp_path) as store:
        for number in (1, 2, 3):
            commit(store, number, keep=1)
        with pytest.raises(StateError, match="generation 2 is no longer kept; there are: 0, 3"):
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
    assert all(check.passed for check in verify(folder))


# What an interrupted commit leaves


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
    assert all(check.passed for check in verify(folder))
    assert StateStore.open(folder, write=True).repairs == []


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
    assert all(check.passed for check in verify(folder))


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


# Damage


def _damage(folder: Path, what: str) -> None:
    if what == "ledger truncated by a line":
        lines = (folder / "ledger.jsonl").read_bytes().splitlines(keepends=True)
        (folder / "ledger.jsonl").write_bytes(b"".join(lines[:-1]))
    elif what == "ledger without its last line end":
        (folder / "ledger.jsonl").write_bytes((folder / "ledger.jsonl").read_bytes()[:-1])
    elif what == "ledger emptied":
        (folder / "ledger.jsonl").write_bytes(b"")
    elif what == "ledger of another state":
        other = make_state(folder.parent / "other", first=11)
        (folder / "ledger.jsonl").write_bytes((other / "ledger.jsonl").read_bytes())
    elif what.endswith("missing"):
        _file(folder, what).unlink()
    elif what.endswith("garbage"):
        _file(folder, what).write_bytes(b"\xff\x00 garbage")
    elif what.endswith("emptied"):
        _file(folder, what).write_bytes(b"")
    elif what.startswith("pointer with another"):
        pointer = json.loads((folder / "current.json").read_text())
        name = what.split()[-1]
        pointer[name] = "0" * 64 if name == "head" else pointer[name] - 1
        (folder / "current.json").write_text(json.dumps(pointer))
    elif what.startswith("manifest with another"):
        manifest = json.loads((folder / "manifest.json").read_text())
        changes = {"seed": 1, "fingerprint": "e" * 64, "config": {"budget": 5}, "channels": 7}
        manifest[what.split()[-1]] = changes[what.split()[-1]]
        (folder / "manifest.json").write_text(json.dumps(manifest))
    else:
        raise AssertionError(what)


def _file(folder: Path, what: str) -> Path:
    names = {"pointer": "current.json", "manifest": "manifest.json", "ledger": "ledger.jsonl"}
    if what.startswith("generation"):
        return generation_file(folder, 3)
    return folder / names.get(what.split()[0], what.split()[0])


DAMAGE = [
    ("ledger truncated by a line", r"ledger\.jsonl is damaged: it has 3 lines"),
    ("ledger without its last line end", r"ledger\.jsonl is damaged: it has 3 lines"),
    ("ledger emptied", r"ledger\.jsonl is damaged: it has no whole line"),
    ("ledger missing", r"ledger\.jsonl is missing"),
    ("ledger garbage", r"ledger\.jsonl is damaged"),
    ("ledger of another state", r"ledger\.jsonl is damaged"),
    ("pointer missing", r"current\.json is missing"),
    ("pointer garbage", r"current\.json is damaged"),
    ("pointer emptied", r"current\.json is damaged"),
    ("pointer with another head", r"current\.json"),
    ("pointer with another entries", r"current\.json"),
    ("pointer with another generation", r"current\.json"),
    ("manifest missing", r"manifest\.json is missing"),
    ("manifest garbage", r"manifest\.json is damaged"),
    ("manifest emptied", r"manifest\.json is damaged"),
    ("manifest with another seed", r"manifest\.json"),
    ("manifest with another fingerprint", r"manifest\.json"),
    ("manifest with another config", r"manifest\.json"),
    ("manifest with another channels", r"manifest\.json"),
    ("generation missing", r"00000003\.safetensors is missing"),
]


@pytest.mark.parametrize("write", [False, True], ids=["reading", "writing"])
@pytest.mark.parametrize(("what", "message"), DAMAGE, ids=[what for what, _ in DAMAGE])
def test_damage_is_refused_naming_the_file_and_left_as_it_is(
    folder: Path, what: str, message: str, write: bool
) -> None:
    _damage(folder, what)
    before = contents(folder)
    with pytest.raises(StateError, match=message):
        StateStore.open(folder, write=write)
    assert contents(folder) == before


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("generation garbage", r"00000003\.safetensors is damaged"),
        ("generation emptied", r"00000003\.safetensors is damaged"),
    ],
)
def test_a_damaged_generation_is_refused_when_it_is_loaded(
    folder: Path, what: str, message: str
) -> None:
    _damage(folder, what)
    with pytest.raises(StateError, match=message):
        StateStore.open(folder).load()
    with (
        StateStore.open(folder, write=True) as store,
        pytest.raises(StateError, match=message),
    ):
        store.rollback(3)


@pytest.mark.parametrize(
    "change",
    ["one bit", "a tensor missing", "another generation's tensors"],
)
def test_a_generation_with_other_values_is_refused(folder: Path, change: str) -> None:
    path = generation_file(folder, 3)
    if change == "one bit":
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    elif change == "a tensor missing":
        from safetensors.torch import save_file

        tensors = load_file(path)
        del tensors["hits"]
        save_file(tensors, path)
    else:
        path.write_bytes(generation_file(folder, 2).read_bytes())
    with pytest.raises(StateError, match=r"00000003\.safetensors is damaged: .*(digest|hits)"):
        StateStore.open(folder).load()


@pytest.mark.parametrize("what", ["key missing", "key garbage", "key emptied"])
def test_a_damaged_key_is_named(folder: Path, what: str) -> None:
    _damage(folder, what)
    with pytest.raises(StateError, match=rf"{folder}/key is missing or damaged"):
        StateStore.open(folder).key()


def test_a_newer_format_is_refused_before_anything_else_is_looked_at(folder: Path) -> None:
    (folder / "manifest.json").write_text('{"format": 2, "something": "unheard of"}')
    (folder / "ledger.jsonl").write_bytes(b"binary in the year 2100")
    with pytest.raises(StateError, match=r"state format 2, .* reads format 1; use a newer version"):
        StateStore.open(folder)


# States that were made for something else

SMALL = TFRConfig.paper(guard_examples=4, retain_examples=4)


@pytest.fixture(scope="module")
def llama():
    return tiny.make_model("llama")


@pytest.fixture(scope="module")
def used_state(llama, tokenizer, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("used") / "state"
    with Session(llama, tokenizer, folder, tiny.examples(8), config=SMALL) as session:
        session.forget(tiny.requests(1)[0])
    return folder


@pytest.mark.parametrize(
    ("changes", "seed", "reason"),
    [
        ({"layers": [0]}, None, "another channel selection"),
        ({"target_modules": ["q_proj"]}, None, "another channel selection"),
        ({"budget": 7}, None, "made with budget=128, not 7"),
        ({"step": "fisher"}, None, "made with step=select, not fisher"),
        ({}, 5, "made with seed 0, not 5"),
    ],
)
def test_a_state_made_with_other_settings_is_refused_with_the_reason(
    used_state: Path, llama, tokenizer, changes: dict, seed: int | None, reason: str
) -> None:
    before = contents(used_state)
    config = TFRConfig.from_dict(SMALL.to_dict() | changes)
    with pytest.raises(StateError, match=reason):
        Session(llama, tokenizer, used_state, tiny.examples(8), config=config, seed=seed)
    assert contents(used_state) == before
    assert not any(module._forward_hooks for module in llama.modules())
    StateStore.open(used_state, write=True).close()  # the lock was given back


def test_one_changed_weight_makes_another_base_model(used_state: Path, tokenizer) -> None:
    model = tiny.make_model("llama")
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[3, 5] += 0.5
    with pytest.raises(StateError, match="another base model"):
        Session(model, tokenizer, used_state, tiny.examples(8))
    with pytest.raises(StateError, match="another base model"):
        apply_state(model, used_state)


# No permission


@pytest.mark.parametrize("step", ["making the folder", "locking", "writing"])
def test_no_write_permission_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    folder = tmp_path / "new" if step == "making the folder" else make_state(tmp_path / "state", 1)
    store = StateStore.open(folder, write=True) if step == "writing" else None
    real_open, real_mkdir = os.open, os.mkdir

    def refused_open(path, flags, *rest, **named):
        if flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):
            raise PermissionError(13, "Permission denied", str(path))
        return real_open(path, flags, *rest, **named)

    def refused_mkdir(path, *rest, **named):
        raise PermissionError(13, "Permission denied", str(path))

    before = contents(folder)
    monkeypatch.setattr(os, "open", refused_open)
    monkeypatch.setattr(os, "mkdir", refused_mkdir)
    expected = re.escape(str(folder)) + ".*Permission denied"
    with pytest.raises(StateError, match=expected):
        if store:
            commit(store, 2)
        elif step == "locking":
            StateStore.open(folder, write=True)
        else:
            create(folder)
    monkeypatch.setattr(os, "open", real_open)
    monkeypatch.setattr(os, "mkdir", real_mkdir)
    assert contents(folder) == before
    if store:
        store.close()
        assert all(check.passed for check in verify(folder))


def test_a_state_that_lost_manifest_and_ledger_is_not_made_anew(folder: Path) -> None:
    before = contents(folder)
    (folder / "manifest.json").unlink()
    (folder / "ledger.jsonl").unlink()
    with pytest.raises(StateError, match=r"manifest\.json is missing: the state is damaged"):
        create(folder)
    left = contents(folder)
    assert {name for name in before if name.startswith("generations")} <= set(left)


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


def test_a_reader_is_not_disturbed_by_a_commit_between_its_two_reads(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = StateStore.open(folder, write=True)
    read_pointer = StateStore._read_pointer

    def commit_in_between(store: StateStore) -> dict:
        pointer = read_pointer(store)
        if store is not writer:
            monkeypatch.setattr(StateStore, "_read_pointer", read_pointer)
            commit(writer, 4)
        return pointer

    monkeypatch.setattr(StateStore, "_read_pointer", commit_in_between)
    reader = StateStore.open(folder)
    assert reader.generation == 4
    assert is_equal(reader.load(), made_up_state(4))
    writer.close()
