"""A state with a signing key: from its first line on, from a later one on, or handed over."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.state.made_up import commit, contents, create, make_state
from tfrnet.core.errors import InputError, StateError, TfrnetError
from tfrnet.core.signing import make_key, read_key
from tfrnet.method_state import verify_state
from tfrnet.state.evidence import Kept
from tfrnet.state.signatures import check_signatures
from tfrnet.state.store import StateStore


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return tmp_path / "keys" / "key.pem"


def entries(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]


def is_sound(folder: Path) -> bool:
    return all(check.passed for check in verify_state(folder))


def test_with_a_key_every_line_is_signed_and_the_key_is_made(tmp_path: Path, key: Path) -> None:
    folder = make_state(tmp_path / "state", key=key)
    assert key.stat().st_mode & 0o777 == 0o600
    public = read_key(key).public
    lines = entries(folder)
    assert lines[0]["public_key"] == public.text
    for number, line in enumerate(lines, start=1):
        body = {name: line[name] for name in line if name not in ("hash", "signature")}
        assert public.has_signed(body, line["signature"])
        assert line["sequence"] == number
        assert line.get("state") == (lines[0]["hash"] if number > 1 else None)
    found = check_signatures(lines)
    assert (found.since, found.signers, found.in_force) == (1, (public.text,), public.text)
    assert StateStore.open(folder).public_key == public.text
    assert is_sound(folder)


def test_the_environment_names_a_key_too(
    tmp_path: Path, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFRNET_KEY", str(key))
    folder = make_state(tmp_path / "state")
    with StateStore.open(folder, write=True) as store:
        commit(store, 4)
    assert check_signatures(entries(folder)).since == 1


def test_without_a_key_no_line_is_signed_and_verify_says_so(folder: Path) -> None:
    assert check_signatures(entries(folder)).since == 0
    assert StateStore.open(folder).public_key == ""
    checks = {check.name: check for check in verify_state(folder)}
    assert checks["signatures"].passed
    assert "this state is not signed" in checks["signatures"].detail


def test_signing_begins_with_a_line_that_names_the_key_before_the_next_event(
    folder: Path, key: Path
) -> None:
    with StateStore.open(folder, write=True, key=key) as store:
        assert len(entries(folder)) == 4
        assert not key.exists()  # until it is needed
        commit(store, 4)
        commit(store, 5, accepted=False)
        store.rollback(1)
    lines = entries(folder)
    assert [line["kind"] for line in lines[4:]] == ["key", "request", "request", "rollback"]
    assert lines[4]["public_key"] == lines[4]["signer"] == read_key(key).public.text
    assert all("signature" not in line for line in lines[:4])
    assert check_signatures(lines).since == 5
    assert set(StateStore.open(folder).history.applied) == {"request-1"}
    assert is_sound(folder)


def test_a_rotation_is_signed_by_the_old_key_and_later_lines_by_the_new(
    tmp_path: Path, key: Path
) -> None:
    folder, new = make_state(tmp_path / "state", key=key), tmp_path / "new.pem"
    with StateStore.open(folder, write=True, key=key) as store:
        store.rotate_key(new)
        # At once, the new public key is enough to check the ledger.
        kept = Kept(public_key=read_key(new).public)
        assert all(check.passed for check in verify_state(folder, kept))
        commit(store, 4)
    old_text, new_text = read_key(key).public.text, read_key(new).public.text
    lines = entries(folder)
    assert (lines[4]["signer"], lines[4]["public_key"]) == (old_text, new_text)
    assert lines[5]["signer"] == new_text
    assert check_signatures(lines).signers == (old_text, new_text)
    assert is_sound(folder)
    before = contents(folder)
    with pytest.raises(StateError, match="is signed by key"):
        StateStore.open(folder, write=True, key=key)
    assert contents(folder) == before
    with StateStore.open(folder, write=True, key=new) as store:
        with pytest.raises(InputError, match=r"signs state .* already"):
            store.rotate_key(new)
        commit(store, 5)
    assert is_sound(folder)


def test_an_unsigned_state_has_no_key_to_rotate(folder: Path, tmp_path: Path) -> None:
    with (
        StateStore.open(folder, write=True) as store,
        pytest.raises(InputError, match="is not signed; 'tfrnet key sign' signs it"),
    ):
        store.rotate_key(tmp_path / "new.pem")
    assert not (tmp_path / "new.pem").exists()


def spoil(key: Path, how: str) -> Path | None:
    """Return the key to open with."""
    if how == "none":
        return None
    if how == "missing":
        key.unlink()
    elif how == "open to others":
        key.chmod(0o644)
    elif how == "another":
        key.unlink()
        make_key(key)
    elif how == "no key":
        key.write_text("something else")
    elif how == "a folder":
        key.unlink()
        key.mkdir()
    return key


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("none", r"is signed by key \w{16}; give its file with --key or TFRNET_KEY$"),
        ("missing", r"key\.pem does not exist$"),
        ("open to others", r"is open to others \(mode 0644\)"),
        (
            "another",
            r"is key \w{16}, but state .* is signed by key \w{16}; give that one with --key$",
        ),
        ("no key", "is not an Ed25519 private key in PEM$"),
        ("a folder", r"key\.pem is not a file$"),
    ],
)
def test_a_signed_state_is_not_written_to_without_its_key(
    tmp_path: Path, key: Path, how: str, says: str
) -> None:
    folder = make_state(tmp_path / "state", key=key)
    # An interrupted commit, which opening for writing would put right.
    with (folder / "ledger.jsonl").open("ab") as ledger:
        ledger.write(b'{"torn')
    before = contents(folder)
    with pytest.raises(TfrnetError, match=says):
        StateStore.open(folder, write=True, key=spoil(key, how))
    assert contents(folder) == before
    assert StateStore.open(folder).generation == 3  # for reading no key is needed


@pytest.mark.parametrize("how", ["open to others", "no key"])
def test_a_bad_key_is_refused_before_a_new_state_is_made(
    tmp_path: Path, key: Path, how: str
) -> None:
    make_key(key)
    spoil(key, how)
    with pytest.raises(InputError):
        create(tmp_path / "state", key)
    assert not (tmp_path / "state").exists()


def test_a_key_that_may_not_be_read_is_one_clear_line(key: Path) -> None:
    make_key(key)
    key.chmod(0)
    user = os.geteuid()
    if user == 0:  # who may read everything
        os.seteuid(65534)
    try:
        with pytest.raises(InputError, match=r"key\.pem cannot be read: Permission denied$"):
            read_key(key)
    finally:
        os.seteuid(user)


def test_a_key_inside_the_state_is_refused(tmp_path: Path, folder: Path) -> None:
    before = contents(folder)
    for make in (
        lambda: create(tmp_path / "new", tmp_path / "new" / "key.pem"),
        lambda: StateStore.open(folder, write=True, key=folder / "generations" / "key.pem"),
    ):
        with pytest.raises(InputError, match="lies in the state itself"):
            make()
    assert contents(folder) == before
    assert not (tmp_path / "new").exists()
