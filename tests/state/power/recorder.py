"""Records what a piece of work does to the files of a folder, as the system calls that it makes.

The functions of `os` are wrapped, which is what `tfrnet.core.files` and pathlib call. A write that
went past them would be missed; so whoever records plays the list back and compares the folders.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest


class Write(NamedTuple):
    file: int
    offset: int
    data: bytes


class Truncate(NamedTuple):
    file: int
    length: int


class Link(NamedTuple):
    """A new name for a file or folder: by creating, linking or making a folder."""

    folder: int
    name: str
    target: int


class Unlink(NamedTuple):
    folder: int
    name: str


class Rename(NamedTuple):
    folder: int
    source: str
    name: str
    target: int


class Sync(NamedTuple):
    target: int


Operation = Write | Truncate | Link | Unlink | Rename | Sync


@dataclass
class Tree:
    """Files and folders by numbers of our own; the first folder is number 0."""

    files: dict[int, bytes] = field(default_factory=dict)
    folders: dict[int, dict[str, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, root: Path) -> tuple[Tree, dict[int, int]]:
        """Return what is in a folder, and the numbers of its inodes."""
        tree, numbers = cls(), {root.stat().st_ino: 0}
        tree.folders[0] = {}
        for path in sorted(root.rglob("*")):
            number = numbers.setdefault(path.stat().st_ino, len(numbers))
            tree.folders[numbers[path.parent.stat().st_ino]][path.name] = number
            if path.is_dir():
                tree.folders[number] = {}
            else:
                tree.files[number] = path.read_bytes()
        return tree, numbers

    def copy(self) -> Tree:
        return Tree(dict(self.files), {n: dict(names) for n, names in self.folders.items()})

    def contents(self, folder: int = 0, prefix: str = "") -> dict[str, bytes | None]:
        """Return every path with its bytes; folders have none."""
        found: dict[str, bytes | None] = {}
        for name, number in sorted(self.folders.get(folder, {}).items()):
            if number in self.folders:
                found[prefix + name] = None
                found |= self.contents(number, f"{prefix}{name}/")
            else:
                found[prefix + name] = self.files.get(number, b"")
        return found

    def apply(self, operation: Operation) -> None:
        """Do what an operation does where nothing goes wrong."""
        match operation:
            case Write(file, offset, data):
                old = self.files.get(file, b"")
                old = old.ljust(offset, b"\0")
                self.files[file] = old[:offset] + data + old[offset + len(data) :]
            case Truncate(file, length):
                self.files[file] = self.files.get(file, b"")[:length].ljust(length, b"\0")
            case Link(folder, name, target):
                self.folders[folder][name] = target
            case Unlink(folder, name):
                self.folders[folder].pop(name, None)
            case Rename(folder, source, name, target):
                if self.folders[folder].get(source) == target:
                    del self.folders[folder][source]
                self.folders[folder][name] = target


@dataclass
class Recording:
    """What was there before, what was done, and after which operation each step had ended."""

    before: Tree
    operations: list[Operation]
    ends: list[int]
    made: dict[int, bool]  # of new numbers, whether it is a folder

    def tree(self) -> Tree:
        """What was there before, with a place for all that came into being."""
        tree = self.before.copy()
        for number, is_folder in self.made.items():
            (tree.folders if is_folder else tree.files)[number] = {} if is_folder else b""
        return tree

    def played(self) -> Tree:
        """What is there after all operations."""
        tree = self.tree()
        for operation in self.operations:
            tree.apply(operation)
        return tree


def record(root: Path, steps: list[Callable[[], object]]) -> Recording:
    """Do the steps and record what they do below `root`; nothing is missed."""
    before, numbers = Tree.of(root)
    recording = Recording(before, [], [], {})
    with _watched(root, numbers, recording):
        for step in steps:
            step()
            recording.ends.append(len(recording.operations))
    found = {
        str(path.relative_to(root)): None if path.is_dir() else path.read_bytes()
        for path in sorted(root.rglob("*"))
    }
    assert recording.played().contents() == found, "something was written past the recorder"
    return recording


@contextmanager
def _watched(root: Path, numbers: dict[int, int], recording: Recording) -> Iterator[None]:
    real = {name: getattr(os, name) for name in _WATCHED}
    done, made = recording.operations, recording.made
    descriptors: dict[int, int] = {}

    def below(path: Any) -> Path | None:
        path = Path(path).absolute()
        return path if path.is_relative_to(root) else None

    def folder_of(path: Path) -> int:
        return numbers[path.parent.stat().st_ino]

    def new(path: Path, is_folder: bool) -> int:
        number = max([*numbers.values(), *made], default=0) + 1
        numbers[path.stat().st_ino] = number
        made[number] = is_folder
        return number

    def open_(path: Any, flags: int, mode: int = 0o777, **named: Any) -> int:
        place = below(path)
        existed = place is not None and place.exists()
        descriptor = real["open"](path, flags, mode, **named)
        if place is None:
            return descriptor
        if not existed:
            done.append(Link(folder_of(place), place.name, new(place, False)))
        number = numbers[os.fstat(descriptor).st_ino]
        if existed and flags & os.O_TRUNC:
            done.append(Truncate(number, 0))
        descriptors[descriptor] = number
        return descriptor

    def close(descriptor: int) -> None:
        descriptors.pop(descriptor, None)
        real["close"](descriptor)

    def write(descriptor: int, data: Any) -> int:
        offset = os.lseek(descriptor, 0, os.SEEK_CUR) if descriptor in descriptors else 0
        if descriptor in descriptors and _appends(descriptor):
            offset = os.fstat(descriptor).st_size
        count = real["write"](descriptor, data)
        if descriptor in descriptors:
            done.append(Write(descriptors[descriptor], offset, bytes(data[:count])))
        return count

    def pwrite(descriptor: int, data: Any, offset: int) -> int:
        count = real["pwrite"](descriptor, data, offset)
        if descriptor in descriptors:
            done.append(Write(descriptors[descriptor], offset, bytes(data[:count])))
        return count

    def ftruncate(descriptor: int, length: int) -> None:
        real["ftruncate"](descriptor, length)
        if descriptor in descriptors:
            done.append(Truncate(descriptors[descriptor], length))

    def fsync(descriptor: int) -> None:
        # Nothing is cut off here for real, so that the disk need not be waited for.
        if descriptor in descriptors:
            done.append(Sync(descriptors[descriptor]))

    def rename(source: Any, target: Any, **named: Any) -> None:
        old, place = below(source), below(target)
        number = numbers[old.stat().st_ino] if old else None
        real["replace"](source, target, **named)
        if old and place:
            assert old.parent == place.parent, "only renames within a folder are known here"
            done.append(Rename(folder_of(place), old.name, place.name, number))

    def unlink(path: Any, **named: Any) -> None:
        place = below(_with_folder(path, named))
        folder = folder_of(place) if place else 0
        real["unlink"](path, **named)
        if place:
            done.append(Unlink(folder, place.name))

    def rmdir(path: Any, **named: Any) -> None:
        place = below(_with_folder(path, named))
        folder = folder_of(place) if place else 0
        real["rmdir"](path, **named)
        if place:
            done.append(Unlink(folder, place.name))

    def mkdir(path: Any, mode: int = 0o777, **named: Any) -> None:
        real["mkdir"](path, mode, **named)
        if place := below(path):
            done.append(Link(folder_of(place), place.name, new(place, True)))

    def link(source: Any, target: Any, **named: Any) -> None:
        real["link"](source, target, **named)
        if place := below(target):
            done.append(Link(folder_of(place), place.name, numbers[place.stat().st_ino]))

    wrapped = dict(zip(_WATCHED, (open_, close, write, pwrite, ftruncate, fsync), strict=False))
    wrapped |= {"rename": rename, "replace": rename, "unlink": unlink, "remove": unlink}
    wrapped |= {"rmdir": rmdir, "mkdir": mkdir, "link": link}
    with pytest.MonkeyPatch.context() as patch:
        for name, function in wrapped.items():
            patch.setattr(os, name, function)
        yield


_WATCHED = ("open", "close", "write", "pwrite", "ftruncate", "fsync", "rename", "replace")
_WATCHED += ("unlink", "remove", "rmdir", "mkdir", "link")


def _appends(descriptor: int) -> bool:
    import fcntl

    return bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND)


def _with_folder(path: Any, named: dict[str, Any]) -> Any:
    if named.get("dir_fd") is None:
        return path
    return Path(f"/proc/self/fd/{named['dir_fd']}").resolve() / path
