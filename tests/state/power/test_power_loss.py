"""Power loss: whatever a file system may leave is the state before or the one after.

Unsynced writes are missing, in another order, or torn at sectors of 512 or 4,096 bytes.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.state.made_up import commit, contents, generation_file, make_state
from tests.state.power.disk import cuts
from tests.state.power.recorder import Rename, Sync, Write, record
from tests.state.power.stories import STORIES, Story, fixed, rebuild, try_cuts
from tfrnet.core import files
from tfrnet.state.backup import back_up
from tfrnet.state.repair import opened_for_repair
from tfrnet.state.restore import restore
from tfrnet.state.store import StateStore


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_any_cut_leaves_before_or_after_and_going_on_ends_in_the_same_bytes(
    tmp_path: Path, story: Story
) -> None:
    sector = 4096 if story.name == "commit of a long line" else 512
    tally = try_cuts(story, tmp_path, sector, most=1, seed=1)
    assert tally.wrong == []
    assert tally.rebuilt > 10


def test_a_backup_that_is_cut_off_is_whole_or_not_there(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    state, out = make_state(tmp_path / "state", 1), tmp_path / "disk" / "state.tar"
    recording = record(tmp_path / "disk", [lambda: back_up(state, out)])
    whole = out.read_bytes()
    left = list(cuts(recording, 4096, most=10))
    assert {cut.contents.get("state.tar") for cut in left} == {None, whole}
    assert [cut.contents["state.tar"] == whole for cut in left if cut.ended] == [True]


def test_a_restore_that_is_cut_off_is_whole_or_not_there(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    state, disk = make_state(tmp_path / "state", 1), tmp_path / "disk"
    back_up(state, tmp_path / "state.tar")
    recording = record(disk, [lambda: restore(tmp_path / "state.tar", disk / "back")])
    whole = {f"back/{name}": data for name, data in contents(state).items()}
    for cut in cuts(recording, 4096, most=5):
        found = {
            name: data
            for name, data in cut.contents.items()
            if name.startswith("back/") and name != "back/lock" and data is not None
        }
        assert found in (({}, whole) if not cut.ended else (whole,))


def repair(folder: Path) -> None:
    with opened_for_repair(folder) as repair:
        repair.carry_out()


def gone_on(folder: Path) -> dict[str, bytes]:
    """Return the files after one more request, which removes what is old."""
    with StateStore.open(folder, write=True) as store:
        commit(store, 9)
    return contents(folder)


@pytest.mark.parametrize("most", [2, pytest.param(None, marks=pytest.mark.slow)])
def test_a_repair_that_is_cut_off_is_done_by_the_next(tmp_path: Path, most: int | None) -> None:
    (tmp_path / "disk").mkdir()
    state = make_state(tmp_path / "disk" / "state", 3)
    (state / "current.json").unlink()
    generation_file(state, 3).write_bytes(b"garbage")
    with fixed():
        recording = record(tmp_path / "disk", [lambda: repair(state)])
        whole = gone_on(state)
        for number, cut in enumerate(cuts(recording, 512, most)):
            left = tmp_path / "left" / str(number)
            rebuild(cut, left)
            repair(left / "state")
            assert gone_on(left / "state") == whole
            shutil.rmtree(left)
    assert number > 20


@pytest.mark.slow
@pytest.mark.parametrize("sector", [512, 4096])
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_every_cut_leaves_before_or_after_and_going_on_ends_in_the_same_bytes(
    tmp_path: Path, story: Story, sector: int
) -> None:
    tally = try_cuts(story, tmp_path, sector)
    print(f"{story.name}, sectors of {sector}: {tally.rebuilt} states")
    assert tally.wrong == []


# The recorder and the disk themselves


def left_by(root: Path, work, sector: int = 512) -> list[dict[str, bytes | None]]:
    return [cut.contents for cut in cuts(record(root, [work]), sector)]


def test_a_file_that_is_replaced_properly_is_old_or_new(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    left = left_by(tmp_path, lambda: files.replace_file(tmp_path / "a", b"new"))
    assert {contents["a"] for contents in left} == {b"old", b"new"}
    recorded = record(tmp_path, [lambda: files.replace_file(tmp_path / "a", b"newer")])
    kinds = [type(operation) for operation in recorded.operations]
    assert kinds[1:] == [Write, Sync, Rename, Sync]


def test_a_rename_before_the_bytes_are_synced_is_seen_to_lose_them(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")

    def careless() -> None:
        descriptor = os.open(tmp_path / "b", os.O_WRONLY | os.O_CREAT)
        os.write(descriptor, b"new")
        os.close(descriptor)
        (tmp_path / "b").replace(tmp_path / "a")

    left = {contents["a"] for contents in left_by(tmp_path, careless)}
    assert {b"old", b"new", b"", b"\0\0\0"} <= left


def test_a_long_append_is_torn_at_sectors_in_any_order(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 500)
    left = left_by(tmp_path, lambda: files.append(tmp_path / "a", b"y" * 600 + b"\n"))
    found = {contents["a"] for contents in left}
    assert b"x" * 500 in found
    assert b"x" * 500 + b"y" * 12 in found  # the first sector
    assert b"x" * 500 + b"\0" * 12 + b"y" * 512 in found  # the second without the first
    assert b"x" * 500 + b"\0" * 12 + b"y" * 512 + b"\0" * 77 in found
    coarse = left_by(tmp_path, lambda: files.append(tmp_path / "a", b"z" * 600), sector=4096)
    assert all(set(contents["a"][1101:]) in (set(), {0}, {0xA5}, {ord("z")}) for contents in coarse)


def test_names_come_and_go_each_for_itself_until_the_folder_is_synced(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_bytes(b"")

    def work() -> None:
        (tmp_path / "a").unlink()
        (tmp_path / "b").unlink()

    left = {"".join(contents) for contents in left_by(tmp_path, work)}
    assert left == {"ab", "a", "b", ""}
    for name in "ab":
        (tmp_path / name).write_bytes(b"")
    careful = {
        "".join(contents)
        for contents in left_by(tmp_path, lambda: [files.remove(tmp_path / n) for n in "ab"])
    }
    assert careful == {"ab", "b", ""}


def test_what_is_written_past_the_recorder_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="past the recorder"):
        record(tmp_path, [lambda: (tmp_path / "a").write_bytes(b"unseen")])
