"""Readers beside a process that commits: each sees one consistent generation."""

from __future__ import annotations

import errno
import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.state.made_up import commit, generation_file, is_equal, made_up_state, make_state
from tfrnet.core.errors import StateError
from tfrnet.method_state import verify_state
from tfrnet.state.pointer import Pointer
from tfrnet.state.store import StateStore

# As fast as commits can be: their syncs, which take longest, are left out.
_COMMITTER = """
import os, sys
from pathlib import Path
os.fsync = lambda descriptor: None
from tests.state.made_up import commit
from tfrnet.state.store import StateStore
with StateStore.open(Path(sys.argv[1]), write=True) as store:
    print("begun", flush=True)
    while True:
        if store.lines % 7 == 6:
            store.rollback(0, keep=int(sys.argv[2]))
        else:
            commit(store, store.generation + 1, store.lines % 5 > 0, keep=int(sys.argv[2]))
"""


@contextmanager
def committing(folder: Path, keep: int) -> Iterator[None]:
    """Have another process commit as fast as it can."""
    command = [sys.executable, "-c", _COMMITTER, str(folder), str(keep)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        try:
            yield
            assert process.poll() is None
        finally:
            process.kill()


def _look(folder: Path) -> int:
    """Read all that a reader reads; what it finds must be of one generation."""
    store = StateStore.open(folder)
    number = store.generation
    time.sleep(0.01)  # another process has removed the generation by now
    state = store.load()
    entries = store.entries
    assert entries[-1]["generation"] == number == store.history.generation
    assert entries[-1]["state_after"] == state.digest()
    assert len(store.history.applied) == store.position.applied
    assert [check for check in verify_state(folder) if not check.passed] == []
    return number


def _read_beside_a_committer(folder: Path, keep: int, seconds: float) -> list[int]:
    seen = []
    with committing(folder, keep):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            seen.append(_look(folder))
    return seen


@pytest.mark.parametrize("keep", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_no_reader_cries_damage_beside_a_fast_committer(folder: Path, keep: int) -> None:
    seen = _read_beside_a_committer(folder, keep, 2)
    assert len(set(seen)) > 5


@pytest.mark.slow
@pytest.mark.parametrize("keep", [1, 2, 20])
def test_no_reader_cries_damage_for_half_a_minute(folder: Path, keep: int) -> None:
    seen = _read_beside_a_committer(folder, keep, 30)
    assert len(set(seen)) > 10  # hundreds, unless the machine is busy


@pytest.mark.parametrize("commits", [1, 2, 5])
def test_a_reader_is_not_disturbed_by_commits_between_its_reads(
    folder: Path, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    writer = StateStore.open(folder, write=True)
    read = Pointer.read.__func__

    def commit_in_between(cls: type[Pointer], path: Path) -> Pointer:
        pointer = read(cls, path)
        monkeypatch.setattr(Pointer, "read", classmethod(read))
        for number in range(4, 4 + commits):
            commit(writer, number, keep=1)
        return pointer

    monkeypatch.setattr(Pointer, "read", classmethod(commit_in_between))
    reader = StateStore.open(folder)
    assert reader.generation == 3 + commits
    commit(writer, 50, keep=1)  # removes the file that the reader is about to read
    assert is_equal(reader.load(), made_up_state(3 + commits))
    assert len(reader.entries) == 4 + commits
    writer.close()


def test_real_damage_is_found_beside_a_writer_too(tmp_path: Path) -> None:
    folder = make_state(tmp_path / "state", commits=3)
    with StateStore.open(folder, write=True):
        path = generation_file(folder, 2)
        data = path.read_bytes()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        assert [check.name for check in verify_state(folder) if not check.passed] == [
            "generation 2"
        ]
        path.write_bytes(data)
        generation_file(folder, 3).unlink()
        with pytest.raises(StateError, match=r"00000003\.safetensors is missing"):
            StateStore.open(folder)


def test_a_disk_that_fails_when_a_reader_lets_go_is_no_traceback(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = StateStore.open(folder)
    close = os.close

    def fail(descriptor: int) -> None:
        close(descriptor)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("tfrnet.state.reader.os.close", fail)
    del store  # forgotten, not closed: what its finaliser raises would be printed
    gc.collect()
    assert capsys.readouterr().err == ""
    StateStore.open(folder).close()


def test_a_thread_that_asks_while_a_failed_commit_is_settled_hears_of_its_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line is in the ledger and only the pointer is not written: it counts as applied."""
    point, check = Pointer.write, StateStore._check_beginning
    faults = [OSError(28, "No space left on device")]
    asking: list[threading.Thread] = []

    def fail_once(pointer: Pointer, path: Path) -> None:
        if faults:
            raise faults.pop()
        point(pointer, path)

    def ask_meanwhile(store: StateStore) -> None:
        if not asking:
            asking.append(threading.Thread(target=lambda: store.history))
            asking[0].start()
            asking[0].join(0.3)  # it may have to wait until all is settled
        check(store)

    with StateStore.open(folder, write=True) as store:
        monkeypatch.setattr(Pointer, "write", fail_once)
        monkeypatch.setattr(StateStore, "_check_beginning", ask_meanwhile)
        with pytest.raises(StateError, match="is applied"):
            commit(store, 4)
        asking[0].join(30)
        assert "request-4" in store.history.applied
        assert store.history.requests_seen == store.position.seen
