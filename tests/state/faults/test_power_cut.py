"""A power cut: only what was synced is still there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.state.faults.strike import (
    COMMIT,
    LINE_WRITTEN,
    REAL,
    assert_before_or_after,
    commit_second,
    finish,
    points,
    struck,
    tensors,
)
from tests.state.made_up import (
    make_state,
)


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
