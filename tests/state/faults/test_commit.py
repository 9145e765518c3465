"""Every operation of a commit fails or is cut short in turn.

Each time the disk holds the state before or the state after and nothing else, and going on ends
where an undisturbed run ends.
"""

from __future__ import annotations

import errno
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.state.faults.strike import (
    COMMIT,
    CREATE,
    LINE_WRITTEN,
    POINTER_RENAMED,
    assert_before_or_after,
    assert_sound,
    commit_second,
    ctrl_c,
    disk_full,
    finish,
    killed_in_child,
    points,
    struck,
    tensors,
)
from tests.state.made_up import (
    commit,
    contents,
    generation_file,
    is_equal,
    made_up_state,
    make_state,
)
from tfrnet.core.errors import StateError
from tfrnet.state.store import StateStore


def test_generation_line_and_pointer_are_each_synced_before_the_next() -> None:
    replaced = ["write", "fsync", "rename", "fsync"]
    assert [*replaced, "write", "fsync", *replaced] == COMMIT
    # key, generation 0, ledger, pointer, manifest
    assert [name for name in CREATE if name != "fsync"] == ["write", "rename"] * 5


@pytest.mark.parametrize(("number", "half"), points(COMMIT))
def test_a_full_disk_in_mid_commit_leaves_before_or_after_and_says_which(
    tmp_path: Path, number: int, half: bool
) -> None:
    folder = make_state(tmp_path / "state", commits=1)
    with StateStore.open(folder, write=True) as store:
        with (
            struck(number, half, disk_full),
            pytest.raises(StateError, match="No space left on device") as caught,
        ):
            commit(store, 2)
        applied = "is applied" in str(caught.value)
        assert applied != ("was not applied" in str(caught.value))
        assert "'request-2'" in str(caught.value)
        # A line that could not be synced does not count: a power cut could still take it away.
        assert applied == (number > LINE_WRITTEN + 1)
        assert store.generation == (2 if applied else 1)
    assert_before_or_after(folder, applied)
    finish(folder)
    assert tensors(folder) == tensors(make_state(tmp_path / "undisturbed", commits=4))


@pytest.mark.parametrize(("number", "half"), points(COMMIT))
def test_the_same_store_goes_on_after_a_full_disk(tmp_path: Path, number: int, half: bool) -> None:
    folder = make_state(tmp_path / "state", commits=1)
    with StateStore.open(folder, write=True) as store:
        with struck(number, half, disk_full), pytest.raises(StateError):
            commit(store, 2)
        for following in range(len(store.history.applied) + 1, 5):
            commit(store, following)
    assert_sound(folder)
    assert tensors(folder) == tensors(make_state(tmp_path / "undisturbed", commits=4))


@pytest.mark.parametrize(("number", "half"), points(COMMIT))
def test_a_disk_that_stays_broken_is_reported_truthfully(
    tmp_path: Path, number: int, half: bool
) -> None:
    """Not even the cleaning up works; what the message promised must hold on the next opening."""
    folder = make_state(tmp_path / "state", commits=1)
    with StateStore.open(folder, write=True) as store:
        with (
            struck(number, half, disk_full, lasting=True),
            pytest.raises(StateError) as caught,
        ):
            commit(store, 2)
        promised = "is applied" in str(caught.value)
        denied = "was not applied" in str(caught.value)
    with StateStore.open(folder, write=True) as store:
        applied = "request-2" in store.history.applied
    assert_before_or_after(folder, applied)
    assert not (promised and not applied), str(caught.value)
    assert not (denied and applied), str(caught.value)


@pytest.mark.parametrize(("number", "half"), points(COMMIT))
def test_kill_at_any_operation_of_a_commit_leaves_before_or_after(
    tmp_path: Path, number: int, half: bool
) -> None:
    folder = make_state(tmp_path / "state", commits=1)
    assert killed_in_child(lambda: commit_second(folder), number, half)
    assert_before_or_after(folder, applied=number > LINE_WRITTEN)
    finish(folder)
    assert tensors(folder) == tensors(make_state(tmp_path / "undisturbed", commits=4))


@pytest.mark.parametrize(("number", "half"), points(COMMIT))
def test_a_repair_that_is_killed_at_every_operation_is_done_by_the_next_opening(
    tmp_path: Path, number: int, half: bool
) -> None:
    folder = make_state(tmp_path / "state", commits=1)
    assert killed_in_child(lambda: commit_second(folder), number, half)
    broken = shutil.copytree(folder, tmp_path / "broken")
    operation = 0
    while killed_in_child(lambda: StateStore.open(folder, write=True).close(), operation):
        assert_before_or_after(folder, applied=number > LINE_WRITTEN)
        shutil.rmtree(folder)
        shutil.copytree(broken, folder)
        operation += 1
    torn = number == LINE_WRITTEN and half
    assert (operation > 0) == (torn or LINE_WRITTEN < number <= POINTER_RENAMED)


@pytest.mark.parametrize(("number", "half"), points(COMMIT))
def test_ctrl_c_at_any_operation_leaves_before_or_after_also_in_memory(
    tmp_path: Path, number: int, half: bool
) -> None:
    folder = make_state(tmp_path / "state", commits=1)
    with StateStore.open(folder, write=True) as store:
        with struck(number, half, ctrl_c), pytest.raises(KeyboardInterrupt):
            commit(store, 2)
        applied = "request-2" in store.history.applied
        assert store.generation == (2 if applied else 1)
    assert_before_or_after(folder, applied)


@pytest.mark.slow
def test_ctrl_c_at_any_line_of_a_commit_never_makes_the_next_commit_lose_it(
    tmp_path: Path,
) -> None:
    """The same store goes on, as in a notebook; an interrupt can come between any two lines."""
    broken = []
    line, finished = 0, False
    while not finished:
        folder = make_state(tmp_path / str(line), commits=1)
        store = StateStore.open(folder, write=True)
        finished = not _interrupted_at_line(line, lambda store=store: commit(store, 2))
        try:
            for following in range(len(store.history.applied) + 1, 4):
                commit(store, following)
        except StateError:
            pass  # to be opened anew, which is a fair answer
        store.close()
        try:
            with StateStore.open(folder, write=True) as store:
                for following in range(len(store.history.applied) + 1, 4):
                    commit(store, following)
                assert is_equal(store.load(), made_up_state(3))
                assert store.generation == 3
            assert_sound(folder)
        except (StateError, AssertionError) as error:
            broken.append((line, str(error).splitlines()[0]))
        line += 1
    assert line > 30
    assert broken == []


def _interrupted_at_line(number: int, work: Callable[[], object]) -> bool:
    """Raise KeyboardInterrupt before the `number`-th line that runs in `tfrnet.state`."""
    seen = 0

    def trace(frame: Any, event: str, _: object) -> Any:
        nonlocal seen
        if "tfrnet/state" not in frame.f_code.co_filename:
            return None
        if event == "line":
            seen += 1
            if seen == number + 1:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_old_generations_that_cannot_be_removed_do_not_hide_that_a_request_is_applied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_state(tmp_path / "state", commits=2)

    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    with StateStore.open(folder, write=True) as store:
        monkeypatch.setattr(Path, "unlink", refuse)
        try:
            commit(store, 3, keep=1)
        except StateError as error:
            assert "is applied" in str(error)
        monkeypatch.undo()
        assert "request-3" in store.history.applied
        commit(store, 4, keep=1)
        assert store.layout.numbers() == [0, 4]
    assert_sound(folder)


def test_nothing_but_a_complete_state_is_ever_seen_by_a_reader(tmp_path: Path) -> None:
    """At every operation of a commit a reader finds one of the two states."""
    folder = make_state(tmp_path / "state", commits=1)
    found: list[int] = []

    def look() -> None:
        reader = StateStore.open(folder)
        assert is_equal(reader.load(), made_up_state(reader.generation))
        found.append(reader.generation)

    before = contents(folder)
    with StateStore.open(folder, write=True) as store, struck(0, False, look, lasting=True):
        commit(store, 2)
    assert found == sorted(found)
    assert set(found) == {1, 2}
    assert len(found) == len(COMMIT)
    assert generation_file(folder, 1).read_bytes() == before["generations/00000001.safetensors"]
