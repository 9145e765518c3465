"""Every write, fsync, rename and truncate of a commit fails or is cut short in turn.

Each time the disk holds the state before or the state after and nothing else, and going on ends
where an undisturbed run ends.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests import tiny
from tests.state.test_store import (
    commit,
    contents,
    create,
    generation_file,
    is_equal,
    made_up_state,
    make_state,
)
from tfrnet.config import TFRConfig
from tfrnet.errors import StateError
from tfrnet.session import Session
from tfrnet.state import fs
from tfrnet.state.store import StateStore
from tfrnet.state.verify import verify

OPERATIONS = ("write", "fsync", "rename", "truncate")
REAL = {name: getattr(fs, name) for name in OPERATIONS}


def points(operations: list[str]) -> list[Any]:
    """Where to strike: (number of the operation, whether after half of its bytes)."""
    found = []
    for number, name in enumerate(operations):
        found.append(pytest.param(number, False, id=f"{number}-{name}"))
        if name == "write":
            found.append(pytest.param(number, True, id=f"{number}-write-half"))
    return found


@pytest.fixture(autouse=True)
def _quick(_two_threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    # No power is cut here for real, so that the order of the syncs counts and not their effect.
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    torch.set_num_threads(1)


@contextmanager
def struck(
    number: int, half: bool, strike: Callable[[], None], lasting: bool = False
) -> Iterator[list[str]]:
    """Call `strike` at the `number`-th file operation (and, if `lasting`, at all later ones)."""
    seen: list[str] = []

    def wrap(name: str) -> Callable[..., None]:
        def operation(*arguments: Any) -> None:
            seen.append(name)
            now = len(seen) - 1
            if now == number or (lasting and now > number):
                if half and name == "write":
                    descriptor, data = arguments
                    os.write(descriptor, data[: len(data) // 2])
                strike()
            REAL[name](*arguments)

        return operation

    try:
        for name in OPERATIONS:
            setattr(fs, name, wrap(name))
        yield seen
    finally:
        for name in OPERATIONS:
            setattr(fs, name, REAL[name])


def operations_of(work: Callable[[Path], object]) -> list[str]:
    """Return the file operations of `work`, which is given a state of one request."""
    with tempfile.TemporaryDirectory() as folder:
        state = make_state(Path(folder) / "state", commits=1)
        with struck(-1, False, disk_full) as seen:
            work(state)
        return seen


def disk_full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def ctrl_c() -> None:
    raise KeyboardInterrupt


def killed_in_child(work: Callable[[], object], number: int, half: bool = False) -> bool:
    """Do `work` in a forked process that is killed (SIGKILL) at an operation: no cleanup runs."""
    child = os.fork()
    if child == 0:
        try:
            with struck(number, half, die):
                work()
            os._exit(0)
        except BaseException as error:
            sys.__stderr__.write(f"in the child: {error!r}\n")
            os._exit(1)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


def commit_second(folder: Path) -> None:
    with StateStore.open(folder, write=True) as store:
        commit(store, 2)


COMMIT = operations_of(commit_second)
CREATE = operations_of(lambda folder: create(folder.with_name("new")).close())
# The second writing is that of the ledger's line: up to it a request is not applied.
LINE_WRITTEN = [number for number, name in enumerate(COMMIT) if name == "write"][1]
POINTER_RENAMED = [number for number, name in enumerate(COMMIT) if name == "rename"][1]


def assert_sound(folder: Path) -> None:
    assert [check for check in verify(folder) if not check.passed] == []
    assert list(folder.rglob("*.partial")) == []


def assert_before_or_after(folder: Path, applied: bool) -> None:
    """Open for writing: exactly the state of one commit or of two, as ledger and files agree."""
    with StateStore.open(folder, write=True) as store:
        assert store.generation == (2 if applied else 1)
        assert is_equal(store.load(), made_up_state(2 if applied else 1))
        assert list(store.history.applied) == ["request-1", "request-2"][: 2 if applied else 1]
        assert store.layout.numbers() == list(range(store.generation + 1))
    assert_sound(folder)


def tensors(folder: Path) -> list[dict[str, bytes]]:
    """Every generation's tensors, as bytes."""
    return [
        {name: tensor.numpy().tobytes() for name, tensor in load_file(path).items()}
        for path in sorted((folder / "generations").iterdir())
    ]


def finish(folder: Path) -> None:
    """Commit what is missing of requests 1 to 4."""
    with StateStore.open(folder, write=True) as store:
        for number in range(len(store.history.applied) + 1, 5):
            commit(store, number)


# One commit of the store alone


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


# A power cut: only what was synced is still there


class Disk:
    """What a power cut leaves in the worst case: file contents and folder entries as last synced.

    It watches every fsync. Folders that were never synced are empty, files that were never synced
    too.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.names: dict[int, dict[str, tuple[int, bool]]] = {}  # folder -> name -> inode, is_dir
        self.data: dict[int, bytes] = {}
        for path in [root, *root.rglob("*")]:
            self._sync(path)

    def _sync(self, path: Path) -> None:
        if path.is_dir():
            self.names[path.stat().st_ino] = {
                entry.name: (entry.inode(), entry.is_dir()) for entry in os.scandir(path)
            }
        else:
            self.data[path.stat().st_ino] = path.read_bytes()

    def fsync(self, descriptor: int) -> None:
        self._sync(Path(f"/proc/self/fd/{descriptor}").resolve())

    def after_power_cut(self, target: Path) -> Path:
        self._restore(self.root.stat().st_ino, target)
        return target

    def _restore(self, folder: int, target: Path) -> None:
        target.mkdir()
        for name, (inode, is_dir) in self.names.get(folder, {}).items():
            if is_dir:
                self._restore(inode, target / name)
            else:
                (target / name).write_bytes(self.data.get(inode, b""))


class PowerCut(BaseException):
    """Not an error that anybody handles."""


def cut_power(
    root: Path, target: Path, number: int, half: bool, work: Callable[[], object]
) -> Path:
    """Do `work` until an operation and return what was on the disk at that instant."""
    disk = Disk(root)
    found: list[Path] = []

    def strike() -> None:
        found.append(disk.after_power_cut(target))
        raise PowerCut

    real = REAL["fsync"]

    def watched(descriptor: int) -> None:
        real(descriptor)
        if not found:
            disk.fsync(descriptor)

    REAL["fsync"] = watched
    try:
        with struck(number, half, strike):
            work()
        return disk.after_power_cut(target)
    except PowerCut:
        return found[0]
    finally:
        REAL["fsync"] = real


@pytest.mark.parametrize(("number", "half"), [*points(COMMIT), (len(COMMIT), False)])
def test_a_power_cut_in_mid_commit_leaves_before_or_after(
    tmp_path: Path, number: int, half: bool
) -> None:
    root = tmp_path / "disk"
    folder = make_state(root / "state", commits=1)

    cut = cut_power(root, tmp_path / "left", number, half, lambda: commit_second(folder))
    left = cut / "state"
    # The ledger's fsync is the moment of truth.
    assert_before_or_after(left, applied=number > LINE_WRITTEN + 1)
    finish(left)
    assert tensors(left) == tensors(make_state(tmp_path / "undisturbed", commits=4))


def test_a_new_state_and_its_first_commit_survive_a_power_cut(tmp_path: Path) -> None:
    root = tmp_path / "disk"
    root.mkdir()
    work = lambda: make_state(root / "state", commits=1)  # noqa: E731
    left = cut_power(root, tmp_path / "left", 10_000, False, work)
    assert_before_or_after(left / "state", applied=False)


# Making a state


@pytest.mark.parametrize("strike", [disk_full, die], ids=["full", "killed"])
@pytest.mark.parametrize(("number", "half"), points(CREATE))
def test_a_state_that_could_not_be_made_is_made_by_the_next_attempt(
    tmp_path: Path, number: int, half: bool, strike: Callable[[], None]
) -> None:
    folder = tmp_path / "state"
    if strike is die:
        assert killed_in_child(lambda: create(folder), number, half)
    else:
        with (
            struck(number, half, disk_full),
            pytest.raises(StateError, match="cannot be made: No space left"),
        ):
            create(folder)
    if StateStore.exists(folder):
        StateStore.open(folder, write=True).close()  # complete; only the last fsync was missing
    else:
        with pytest.raises(StateError, match="holds no state"):
            StateStore.open(folder)
        create(folder).close()
    assert_sound(folder)
    finish(folder)
    assert tensors(folder) == tensors(make_state(tmp_path / "undisturbed", commits=4))


# Returning to an earlier generation


@pytest.mark.parametrize("strike", [disk_full, die], ids=["full", "killed"])
@pytest.mark.parametrize(("number", "half"), points(COMMIT))
def test_a_rollback_happens_wholly_or_not_at_all(
    tmp_path: Path, number: int, half: bool, strike: Callable[[], None]
) -> None:
    folder = make_state(tmp_path / "state", commits=2)

    def work() -> None:
        with StateStore.open(folder, write=True) as store:
            store.rollback(1)

    if strike is die:
        assert killed_in_child(work, number, half)
    else:
        with struck(number, half, disk_full), pytest.raises(StateError) as caught:
            work()
    with StateStore.open(folder, write=True) as store:
        done = store.entries[-1]["kind"] == "rollback"
        assert store.generation == (3 if done else 2)
        assert is_equal(store.load(), made_up_state(1 if done else 2))
        assert ("request-2" in store.history.applied) != done
        if strike is die:
            assert done == (number > LINE_WRITTEN)
        else:
            assert ("is applied" if done else "was not applied") in str(caught.value)
    assert_sound(folder)


# A stream on a model

SMALL = TFRConfig(guard_examples=4, retain_examples=4, steps=1, max_length=16)
STREAM = tiny.requests(3, size=2)


@pytest.fixture(scope="module")
def model():
    return tiny.make_model("llama")


def session_on(model, tokenizer, folder: Path) -> Session:
    return Session(model, tokenizer, folder, tiny.examples(12), config=SMALL, batch_size=4)


@pytest.fixture(scope="module")
def undisturbed(model, tokenizer, tmp_path_factory) -> Path:
    """The state of an undisturbed run; beside it, in `first`, that after the first request."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("undisturbed") / "state"
    with session_on(model, tokenizer, folder) as session:
        assert session.forget(STREAM[0]).accepted
        shutil.copytree(folder, folder.with_name("first"))
        assert [outcome.accepted for outcome in session.run(STREAM)] == [True] * 2
    return folder


@pytest.fixture
def open_session(model, tokenizer, undisturbed: Path, tmp_path: Path) -> Callable[[], Session]:
    """Opens a session on a state that has seen the first request."""
    shutil.copytree(undisturbed.with_name("first"), tmp_path / "state")
    return lambda: session_on(model, tokenizer, tmp_path / "state")


@pytest.mark.parametrize(("number", "half"), points(COMMIT))
def test_a_stream_killed_in_mid_commit_resumes_to_the_same_bits(
    tmp_path: Path, open_session, undisturbed: Path, number: int, half: bool
) -> None:
    whole = StateStore.open(undisturbed)

    def work() -> None:
        # Torch cannot compute in a forked process: it commits what a whole run computed.
        with StateStore.open(tmp_path / "state", write=True) as store:
            added = ("hash", "previous", "kind", "time", "generation")
            record = {k: v for k, v in whole.entries[2].items() if k not in added}
            store.commit(record, whole.load(2))

    assert killed_in_child(work, number, half)
    with open_session() as session:
        assert session.store.generation == (2 if number > LINE_WRITTEN else 1)
        list(session.run(STREAM))
    assert_sound(tmp_path / "state")
    assert tensors(tmp_path / "state") == tensors(undisturbed)


@pytest.mark.parametrize(("number", "half"), points(COMMIT))
def test_a_session_goes_on_after_a_full_disk_to_the_same_bits(
    tmp_path: Path, open_session, undisturbed: Path, number: int, half: bool
) -> None:
    with open_session() as session:
        with struck(number, half, disk_full), pytest.raises(StateError) as caught:
            session.forget(STREAM[1])
        assert session.is_applied(STREAM[1]) == ("is applied" in str(caught.value))
        assert torch.equal(session.net.state.mask, session.store.load().mask)
        list(session.run(STREAM))
    assert_sound(tmp_path / "state")
    assert tensors(tmp_path / "state") == tensors(undisturbed)


@pytest.mark.parametrize("number", range(len(COMMIT)))
def test_a_session_never_disagrees_with_its_disk_after_a_failed_rollback(
    open_session, number: int
) -> None:
    with open_session() as session:
        with struck(number, False, disk_full), pytest.raises(StateError):
            session.rollback(0)
        on_disk = session.store.load()
        assert is_equal(session.net.state, on_disk)
        assert torch.equal(session.net.mask.values.cpu(), on_disk.mask)


def test_ctrl_c_between_commit_and_memory_does_not_undo_the_request(
    open_session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit is on disk and the interrupt comes before the session knows."""
    with open_session() as session:
        monkeypatch.setattr(session.net, "adopt", lambda proposal: ctrl_c())
        with pytest.raises(KeyboardInterrupt):
            session.forget(STREAM[1])
        assert session.is_applied(STREAM[1])
        assert is_equal(session.net.state, session.store.load())
        assert session.net.requests_seen == 2


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
