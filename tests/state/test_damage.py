"""Damage and missing permission: one clear error that names the file, and nothing changed."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests.state.made_up import (
    commit,
    contents,
    create,
    generation_file,
    make_state,
)
from tfrnet.core.errors import StateError
from tfrnet.method_state import verify_state
from tfrnet.state.store import StateStore


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


def test_a_state_that_lost_manifest_and_ledger_is_not_made_anew(folder: Path) -> None:
    before = contents(folder)
    (folder / "manifest.json").unlink()
    (folder / "ledger.jsonl").unlink()
    with pytest.raises(StateError, match=r"manifest\.json is missing: the state is damaged"):
        create(folder)
    left = contents(folder)
    assert {name for name in before if name.startswith("generations")} <= set(left)


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
        assert all(check.passed for check in verify_state(folder))
