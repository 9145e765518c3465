"""One writer at a time, also between real processes, and no lock that outlives its holder."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.state.made_up import commit, contents, create, make_state
from tfrnet.core.errors import StateError
from tfrnet.method_state import verify_state
from tfrnet.state.store import StateStore

# The lock alone needs no torch, so that the second process starts at once.
_HOLDER = """
import sys, time
from pathlib import Path
from tfrnet.core.lock import FolderLock
lock = FolderLock(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_state(tmp_path / "state", commits=1)


@pytest.fixture
def holder(folder: Path) -> Iterator[subprocess.Popen]:
    """Another process that has the state open for writing."""
    command = [sys.executable, "-c", _HOLDER, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_process_is_told_who_uses_the_state(
    folder: Path, holder: subprocess.Popen
) -> None:
    before = contents(folder)
    with pytest.raises(StateError, match=f"{folder} is in use by process {holder.pid}"):
        StateStore.open(folder, write=True)
    with pytest.raises(StateError, match="in use"):
        create(folder)
    assert contents(folder) == before


def test_reading_needs_no_lock(folder: Path, holder: subprocess.Popen) -> None:
    assert StateStore.open(folder).generation == 1


def test_the_lock_is_free_after_its_holder_was_killed(
    folder: Path, holder: subprocess.Popen
) -> None:
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    with StateStore.open(folder, write=True) as store:
        commit(store, 2)
        assert store.generation == 2


def test_the_lock_is_free_after_closing_and_after_a_refused_opening(folder: Path) -> None:
    with (
        StateStore.open(folder, write=True),
        pytest.raises(StateError, match="in use by this process"),
    ):
        StateStore.open(folder, write=True)
    pointer = (folder / "current.json").read_bytes()
    (folder / "current.json").write_bytes(b"damaged")
    with pytest.raises(StateError, match="damaged"):
        StateStore.open(folder, write=True)
    (folder / "current.json").write_bytes(pointer)
    StateStore.open(folder, write=True).close()


def test_a_closed_store_commits_no_more(folder: Path) -> None:
    store = StateStore.open(folder, write=True)
    store.close()
    with pytest.raises(StateError, match="opened for writing"):
        commit(store, 2)
    with pytest.raises(StateError, match="opened for writing"):
        store.rollback(0)


def test_a_deleted_lock_file_lets_no_second_writer_in(folder: Path) -> None:
    """Two writers would each add a line after the same one, and fork the ledger."""
    with StateStore.open(folder, write=True) as store:
        (folder / "lock").unlink()
        with pytest.raises(StateError, match="in use by another process"):
            StateStore.open(folder, write=True)
        with pytest.raises(StateError, match="lock was removed or replaced"):
            commit(store, 2)
    with StateStore.open(folder, write=True) as store:
        commit(store, 2)
    assert all(check.passed for check in verify_state(folder))


def test_where_folders_cannot_be_locked_the_first_writer_gives_way(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on some network file systems: there the file's lock is all, and its loss is seen."""
    real = fcntl.flock

    def no_folders(descriptor: int, operation: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EBADF, "Bad file descriptor")
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", no_folders)
    first = StateStore.open(folder, write=True)
    with pytest.raises(StateError, match="in use by this process"):
        StateStore.open(folder, write=True)
    (folder / "lock").unlink()
    with StateStore.open(folder, write=True) as second:
        with pytest.raises(StateError, match="lock was removed or replaced"):
            commit(first, 2)
        commit(second, 2)
    first.close()
    assert all(check.passed for check in verify_state(folder))


def test_a_folder_that_vanished_is_said_so(folder: Path) -> None:
    with StateStore.open(folder, write=True) as store:
        folder.rename(folder.with_name("elsewhere"))
        with pytest.raises(StateError, match="state has been moved or deleted"):
            store.key()
        with pytest.raises(StateError, match="was removed or replaced"):
            commit(store, 2)
    assert StateStore.open(folder.with_name("elsewhere")).generation == 1
