"""A backup holds one moment of a state, whole or not at all, and gives the same state back."""

from __future__ import annotations

import io
import json
import os
import stat
import tarfile
import threading
from pathlib import Path

import pytest

from tests.state.faults.strike import disk_full, struck
from tests.state.made_up import (
    commit,
    contents,
    create,
    generation_file,
    is_equal,
    made_up_state,
    make_state,
)
from tfrnet.core import files
from tfrnet.core.errors import InputError, StateError
from tfrnet.method_state import verify_state
from tfrnet.state.backup import back_up
from tfrnet.state.restore import restore
from tfrnet.state.store import StateStore


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    # No power is cut here for real, so that the disk need not be waited for.
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def backup(folder: Path, tmp_path: Path) -> Path:
    back_up(folder, tmp_path / "backup.tar")
    return tmp_path / "backup.tar"


def assert_sound(folder: Path) -> None:
    assert [check for check in verify_state(folder) if not check.passed] == []


def test_a_restored_state_is_the_same_byte_for_byte(
    folder: Path, backup: Path, tmp_path: Path
) -> None:
    restore(backup, tmp_path / "back")
    assert contents(tmp_path / "back") == contents(folder)
    assert_sound(tmp_path / "back")
    with StateStore.open(tmp_path / "back", write=True) as store:
        assert store.repairs == []
        commit(store, 4)
    assert_sound(tmp_path / "back")


def test_equal_states_give_equal_files_that_only_their_owner_reads(
    folder: Path, backup: Path, tmp_path: Path
) -> None:
    back_up(folder, tmp_path / "again.tar")
    assert (tmp_path / "again.tar").read_bytes() == backup.read_bytes()
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    restore(backup, tmp_path / "back")
    back = [tmp_path / "back", *(tmp_path / "back").rglob("*")]
    modes = {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in back}
    assert modes == {(True, 0o700), (False, 0o600)}


def test_any_tar_reads_a_backup_and_its_list_comes_first(folder: Path, backup: Path) -> None:
    with tarfile.open(backup) as archive:
        names = archive.getnames()
        listed = json.load(archive.extractfile(names[0]))
    assert names[0] == "backup.json"
    assert sorted(names[1:]) == sorted(contents(folder)) == sorted(listed["files"])
    assert (listed["format"], listed["generation"], listed["lines"]) == (1, 3, 4)


def test_an_unfinished_commit_is_no_part_of_a_backup(folder: Path, tmp_path: Path) -> None:
    generation_file(folder, 4).write_bytes(b"half of a genera")
    with (folder / "ledger.jsonl").open("ab") as file:
        file.write(b'{"kind":"req')
    back_up(folder, tmp_path / "backup.tar")
    restore(tmp_path / "backup.tar", tmp_path / "back")
    with StateStore.open(tmp_path / "back", write=True) as store:
        assert store.repairs == []
        assert store.generation == 3


def test_backups_beside_a_fast_writer_each_hold_one_moment(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    store = create(folder)
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            commit(store, number, keep=1)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(12):
            back_up(folder, tmp_path / f"{number}.tar")
    finally:
        stop.set()
        writer.join()
        store.close()
    seen = set()
    for number in range(12):
        back = tmp_path / f"back-{number}"
        restore(tmp_path / f"{number}.tar", back)
        assert_sound(back)
        with StateStore.open(back, write=True) as restored:
            assert restored.repairs == []
            assert is_equal(restored.load(), made_up_state(restored.generation)) or (
                restored.generation == 0
            )
            seen.add(restored.generation)
    assert len(seen) > 1


def test_a_damaged_state_is_not_backed_up(folder: Path, tmp_path: Path) -> None:
    path = generation_file(folder, 2)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(StateError, match=r"00000002\.safetensors is damaged"):
        back_up(folder, tmp_path / "backup.tar")
    assert list(tmp_path.glob("*.tar")) + list(tmp_path.glob(".*")) == []


def test_an_existing_file_is_not_replaced(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match=r"mine\.txt exists already"):
        back_up(folder, tmp_path / "mine.txt")
    assert (tmp_path / "mine.txt").read_text() == "mine"


def operations(work) -> int:
    with struck(-1, False, disk_full) as seen:
        work()
    return len(seen)


def test_a_full_disk_at_any_point_of_a_backup_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    before = contents(folder)
    count = operations(lambda: back_up(folder, tmp_path / "whole.tar"))
    assert count >= 4
    for number in range(count - 1):  # but for the last, of the folder: the file is there by then
        with (
            struck(number, True, disk_full),
            pytest.raises(InputError, match=r"backup\.tar cannot be written: No space left"),
        ):
            back_up(folder, out / "backup.tar")
        assert list(out.iterdir()) == []
    assert contents(folder) == before


def test_a_full_disk_at_any_point_of_a_restore_leaves_nothing(backup: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    count = operations(lambda: restore(backup, tmp_path / "whole"))
    assert count > 20
    for number in range(count - 1):
        with struck(number, True, disk_full), pytest.raises(InputError, match="No space left"):
            restore(backup, out / "state")
        assert list(out.iterdir()) == []
    restore(backup, out / "state")
    assert_sound(out / "state")


def test_what_a_killed_restore_left_is_in_nobodys_way(backup: Path, tmp_path: Path) -> None:
    left = tmp_path / ".state2.restoring" / "generations"
    left.mkdir(parents=True)
    (left / "00000009.safetensors").write_bytes(b"half")
    (left / ".00000009.safetensors.partial").write_bytes(b"half")
    restore(backup, tmp_path / "state2")
    assert_sound(tmp_path / "state2")
    assert not left.parent.exists()


def test_an_existing_state_is_not_replaced(folder: Path, backup: Path) -> None:
    before = contents(folder)
    with pytest.raises(InputError, match="exists already and is not empty"):
        restore(backup, folder)
    assert contents(folder) == before


def rewritten(backup: Path, change) -> Path:
    """Write a backup again with other members: `change` maps names to bytes to the same."""
    with tarfile.open(backup) as archive:
        members = {m.name: archive.extractfile(m).read() for m in archive.getmembers()}
    other = backup.with_name("other.tar")
    with tarfile.open(other, "w") as archive:
        for name, data in change(members).items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return other


def another_format(members: dict[str, bytes]) -> dict[str, bytes]:
    listed = json.loads(members["backup.json"]) | {"format": 2, "files": "unheard of"}
    return members | {"backup.json": json.dumps(listed).encode()}


def outside(members: dict[str, bytes]) -> dict[str, bytes]:
    listed = json.loads(members["backup.json"])
    listed["files"]["../evil"] = {"size": 0, "sha256": ""}
    return {**members, "backup.json": json.dumps(listed).encode(), "../evil": b""}


BAD_BACKUPS = [
    ("another format", another_format, "has backup format 2, .* reads format 1"),
    ("no list", lambda m: {k: v for k, v in m.items() if k != "backup.json"}, "is not a backup"),
    ("a list of another kind", lambda m: m | {"backup.json": b"[]"}, "is not a backup"),
    ("a file missing", lambda m: {k: v for k, v in m.items() if k != "key"}, "key is missing"),
    ("a file too many", lambda m: m | {"more": b""}, "'more' does not belong in it"),
    ("a file outside", outside, r"'\.\./evil' does not belong in it"),
    ("other bytes", lambda m: m | {"key": b"0" * 64}, "the digest of key does not match"),
]


@pytest.mark.parametrize(
    ("change", "message"), [case[1:] for case in BAD_BACKUPS], ids=[c[0] for c in BAD_BACKUPS]
)
def test_a_bad_backup_is_one_clear_line_and_nothing_is_made(
    backup: Path, tmp_path: Path, change, message: str
) -> None:
    bad = rewritten(backup, change)
    with pytest.raises(InputError, match=message) as caught:
        restore(bad, tmp_path / "back")
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.glob("*back"))
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("keep", [0, 100, 512, 5000, -1])
def test_a_backup_that_was_cut_off_is_refused(backup: Path, tmp_path: Path, keep: int) -> None:
    data = backup.read_bytes()
    # The end of a tar is padding, which nothing depends on.
    end = len(data.rstrip(b"\0")) if keep < 0 else keep + 1
    cut = tmp_path / "cut.tar"
    cut.write_bytes(data[: end - 1])
    with pytest.raises(InputError, match=r"cut\.tar"):
        restore(cut, tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_no_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        restore(tmp_path / "nothing.tar", tmp_path / "back")
    with pytest.raises(InputError, match="is a folder"):
        restore(tmp_path, tmp_path / "back")


def test_a_link_in_the_place_of_a_file_is_refused(backup: Path, tmp_path: Path) -> None:
    with tarfile.open(backup) as archive:
        members = [(m, archive.extractfile(m).read()) for m in archive.getmembers()]
    bad = tmp_path / "linked.tar"
    with tarfile.open(bad, "w") as archive:
        for member, data in members:
            if member.name == "key":
                member.type, member.linkname, member.size = tarfile.SYMTYPE, "/etc/passwd", 0
            archive.addfile(member, io.BytesIO(data))
    with pytest.raises(InputError, match=r"'key' is not a plain file"):
        restore(bad, tmp_path / "back")


def test_every_flipped_byte_of_a_backup_is_found_or_does_not_matter(
    folder: Path, backup: Path, tmp_path: Path
) -> None:
    """Padding and the fields of a tar that nothing reads may differ; the state may not."""
    whole, wrong = backup.read_bytes(), []
    before = contents(folder)
    for position in range(0, len(whole), 211):
        data = bytearray(whole)
        data[position] ^= 0x20
        bad = tmp_path / "bad.tar"
        bad.write_bytes(data)
        target = tmp_path / f"back-{position}"
        try:
            restore(bad, target)
        except InputError:
            if target.exists():
                wrong.append(position)
        else:
            if contents(target) != before:
                wrong.append(position)
    assert wrong == []


# Pruning


def test_prune_keeps_the_first_the_newest_and_every_line(folder: Path) -> None:
    ledger = (folder / "ledger.jsonl").read_bytes()
    with StateStore.open(folder, write=True) as store:
        assert store.prune(1) == [1, 2]
        assert store.layout.numbers() == [0, 3]
        pruned = store.entries[-1]
        assert store.prune(1) == []
        assert store.entries[-1] == pruned
        assert set(store.history.applied) == {"request-1", "request-2", "request-3"}
    assert (folder / "ledger.jsonl").read_bytes().startswith(ledger)
    assert (pruned["kind"], pruned["generation"], pruned["oldest"]) == ("pruned", 3, 3)
    assert_sound(folder)


def test_a_pruning_that_was_cut_off_is_finished_and_recorded_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(path: Path) -> None:
        raise OSError(5, "cut off")

    with StateStore.open(folder, write=True) as store, monkeypatch.context() as broken:
        broken.setattr(files, "remove", cut)
        with pytest.raises(StateError, match="cut off"):
            store.prune(1)
    ledger = (folder / "ledger.jsonl").read_bytes()
    assert ledger.count(b'"pruned"') == 1
    with StateStore.open(folder, write=True) as store:
        assert store.prune(1) == [1, 2]
        assert store.layout.numbers() == [0, 3]
    assert (folder / "ledger.jsonl").read_bytes() == ledger
    assert_sound(folder)


def test_prune_needs_a_state_that_is_open_for_writing(folder: Path) -> None:
    with pytest.raises(StateError, match="opened for writing"):
        StateStore.open(folder).prune(1)


def test_each_old_generation_is_gone_for_good_before_the_next_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_state(tmp_path / "state", commits=4)
    seen: list[str] = []
    real_unlink, real_sync = os.unlink, files.fsync_folder
    monkeypatch.setattr(os, "unlink", lambda path: (seen.append(path.name), real_unlink(path)))
    monkeypatch.setattr(
        files, "fsync_folder", lambda path: (seen.append(path.name), real_sync(path))
    )
    with StateStore.open(folder, write=True) as store:
        store.prune(2)
    monkeypatch.undo()  # before the folder goes
    removals = ["00000001.safetensors", "generations", "00000002.safetensors", "generations"]
    assert [name for name in seen if name != "state"] == removals
