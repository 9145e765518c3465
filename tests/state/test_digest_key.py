"""The secret of the digests may lie elsewhere than in the state: then a copy of the folder, or a
backup, is not enough to test a guess."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.state.made_up import commit, contents, create, generation_file, make_state
from tfrnet.core.errors import InputError, StateError, TfrnetError
from tfrnet.method_state import verify_state
from tfrnet.state.backup import back_up
from tfrnet.state.check import Check
from tfrnet.state.digest_key import VARIABLE
from tfrnet.state.repair import opened_for_repair
from tfrnet.state.restore import restore
from tfrnet.state.store import StateStore


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "keys" / "digest.key"
    monkeypatch.setenv(VARIABLE, str(path))
    return path


def key_check(folder: Path) -> Check:
    (found,) = [check for check in verify_state(folder) if check.name == "key"]
    return found


def test_it_is_made_on_first_use_for_its_owner_alone_and_verify_says_where(
    elsewhere: Path, tmp_path: Path
) -> None:
    before = os.umask(0)
    try:
        folder = make_state(tmp_path / "state")
    finally:
        os.umask(before)
    assert elsewhere.stat().st_mode & 0o777 == 0o600
    secret = StateStore.open(folder).key()
    assert secret.hex() == elsewhere.read_text()
    assert len(secret) == 32
    for name, data in contents(folder).items():
        assert name != "key"
        assert secret not in data
        assert secret.hex().encode() not in data
    check = key_check(folder)
    assert (check.passed, check.detail) == (
        True,
        f"elsewhere, as {VARIABLE} says",
    )
    assert make_state(tmp_path / "second").is_dir()  # with the same one
    assert StateStore.open(tmp_path / "second").key() == secret


def test_that_of_a_state_can_be_moved_out_and_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, moved = make_state(tmp_path / "state"), tmp_path / "digest.key"
    secret = StateStore.open(folder).key()
    (folder / "key").rename(moved)
    check = key_check(folder)
    assert not check.passed
    assert f"is missing or damaged; if it was moved, name its file in {VARIABLE}" in check.detail
    monkeypatch.setenv(VARIABLE, str(moved))
    assert StateStore.open(folder).key() == secret
    assert key_check(folder).passed
    with StateStore.open(folder, write=True) as store:
        commit(store, 4)
    moved.rename(folder / "key")
    assert StateStore.open(folder).key() == secret


def test_a_state_with_its_own_keeps_to_it(elsewhere: Path, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(VARIABLE)
        folder = make_state(tmp_path / "state")
    assert key_check(folder).detail == f"{folder / 'key'}, beside the digests that it keys"
    assert not elsewhere.exists()


def test_neither_backup_nor_restored_state_holds_it(elsewhere: Path, tmp_path: Path) -> None:
    folder, backup = make_state(tmp_path / "state"), tmp_path / "state.tar"
    back_up(folder, backup)
    assert elsewhere.read_bytes() not in backup.read_bytes()
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(VARIABLE)
        restore(backup, tmp_path / "back")
    assert contents(tmp_path / "back") == contents(folder)
    assert all(check.passed for check in verify_state(tmp_path / "back"))


def test_repair_works_with_it(elsewhere: Path, tmp_path: Path) -> None:
    folder = make_state(tmp_path / "state")
    generation_file(folder, 3).write_bytes(b"garbage")
    with opened_for_repair(folder) as repair:
        repair.carry_out()
    assert all(check.passed for check in verify_state(folder))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: path.unlink(), r"digest key .* does not exist"),
        (lambda path: path.chmod(0o640), r"digest key .* is open to others \(mode 0640\)"),
        (lambda path: path.write_text("00" * 32), r"digest key .* is not that of state"),
        (lambda path: path.write_text("words"), r"is not a digest key: it must hold 64 hex digits"),
        (lambda path: path.write_text(path.read_text().upper()), "is not a digest key"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(
    elsewhere: Path, tmp_path: Path, spoil, message: str
) -> None:
    elsewhere.parent.mkdir()
    elsewhere.write_text("ab" * 32)
    elsewhere.chmod(0o600)
    folder = make_state(tmp_path / "state")
    spoil(elsewhere)
    with pytest.raises(TfrnetError, match=message):
        StateStore.open(folder).key()
    assert not key_check(folder).passed


def test_a_new_state_refuses_one_in_itself_or_of_no_use_before_anything_is_made(
    elsewhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "state"
    monkeypatch.setenv(VARIABLE, str(folder / "digest.key"))
    with pytest.raises(InputError, match="lies in the state itself"):
        create(folder)
    monkeypatch.setenv(VARIABLE, str(elsewhere))
    elsewhere.parent.mkdir()
    elsewhere.write_text("words")
    elsewhere.chmod(0o600)
    with pytest.raises(InputError, match="is not a digest key"):
        create(folder)
    assert not folder.exists()


def test_what_an_attempt_without_it_left_is_not_taken_for_it(
    elsewhere: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    (folder / "key").write_text("ab" * 32)
    create(folder).close()
    assert not (folder / "key").exists()
    assert StateStore.open(folder).key().hex() == elsewhere.read_text()


def test_a_vanished_state_is_told_from_a_lost_key(elsewhere: Path, tmp_path: Path) -> None:
    store = StateStore.open(make_state(tmp_path / "state"))
    (tmp_path / "state").rename(tmp_path / "moved")
    with pytest.raises(StateError, match="has been moved or deleted"):
        store.key()
