"""Every write, fsync, rename and truncate of a commit can be made to fail or be cut short."""

from __future__ import annotations

import errno
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from tests.state.made_up import (
    commit,
    create,
    is_equal,
    made_up_state,
    make_state,
)
from tfrnet.core import files
from tfrnet.method_state import verify_state
from tfrnet.state.store import StateStore

OPERATIONS = ("write", "fsync", "rename", "truncate")
REAL = {name: getattr(files, name) for name in OPERATIONS}


def points(operations: list[str]) -> list[Any]:
    """Where to strike: (number of the operation, whether after half of its bytes)."""
    found = []
    for number, name in enumerate(operations):
        found.append(pytest.param(number, False, id=f"{number}-{name}"))
        if name == "write":
            found.append(pytest.param(number, True, id=f"{number}-write-half"))
    return found


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
            setattr(files, name, wrap(name))
        yield seen
    finally:
        for name in OPERATIONS:
            setattr(files, name, REAL[name])


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
    assert [check for check in verify_state(folder) if not check.passed] == []
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
