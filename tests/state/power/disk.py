"""All that a POSIX file system may hold after the power is cut in the middle of recorded work.

What POSIX promises is little: `fsync` of a file brings its bytes and its length to the disk, and
`fsync` of a folder its names. Everything since then may be there or not, each part for itself:

* of a write every sector, and the length; a sector that is not there reads as before, or where the
  file was shorter as zeros, or as what lay on the disk earlier;
* of a folder every new, changed and removed name. A rename is one change, but the old name may
  still be there.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from tests.state.power.recorder import (
    Link,
    Operation,
    Recording,
    Rename,
    Sync,
    Tree,
    Truncate,
    Unlink,
    Write,
)

_STALE = b"\xa5"
# Of a write of more sectors than these not every subset is tried, and of many writes to one file
# that were not synced not every combination.
_MOST_SECTORS = 6
_MOST_CONTENTS = 500


@dataclass(frozen=True)
class Cut:
    """What may be left: every path with its bytes, and how many steps had ended by then."""

    contents: dict[str, bytes | None]
    ended: int


def cuts(
    recording: Recording, sector: int, most: int | None = None, seed: int = 0
) -> Iterator[Cut]:
    """Yield every different state that a cut may leave, after any number of operations.

    With `most`, at most so many are drawn after each operation, by the seed.
    """
    chance = random.Random(f"{seed} {sector}")
    seen = set()
    for count in range(len(recording.operations) + 1):
        ended = sum(end <= count for end in recording.ends)
        for tree in _after(recording, count, sector, most, chance):
            contents = tree.contents()
            key = (ended, tuple(contents.items()))
            if key not in seen:
                seen.add(key)
                yield Cut(contents, ended)


def _after(
    recording: Recording, count: int, sector: int, most: int | None, chance: random.Random
) -> Iterator[Tree]:
    """Yield what a cut after `count` operations may leave."""
    base, pending = _synced(recording, recording.operations[:count])
    objects = list(pending)
    choices = [
        _folder_choices(pending[number])
        if number in base.folders
        else _file_choices(base.files.get(number, b""), pending[number], sector, chance)
        for number in objects
    ]
    for chosen in _combinations(choices, most, chance):
        tree = base.copy()
        for number, choice in zip(objects, chosen, strict=True):
            if number in tree.folders:
                _change_names(tree, choice)
            else:
                tree.files[number] = choice
        yield tree


def _synced(
    recording: Recording, operations: Sequence[Operation]
) -> tuple[Tree, dict[int, list[Operation]]]:
    """Return what is surely on the disk, and for each file and folder what was done to it since."""
    tree = recording.tree()
    pending: dict[int, list[Operation]] = {}
    for operation in operations:
        if isinstance(operation, Sync):
            for done in pending.pop(operation.target, []):
                tree.apply(done)
        else:
            changed = operation[0]  # each names first what it changes
            pending.setdefault(changed, []).append(operation)
    return tree, pending


def _combinations(
    choices: list[list[Any]], most: int | None, chance: random.Random
) -> Iterator[tuple[Any, ...]]:
    if most is None or prod(map(len, choices)) <= most:
        yield from product(*choices)
        return
    for _ in range(most):
        yield tuple(chance.choice(options) for options in choices)


def _folder_choices(operations: list[Operation]) -> list[list[tuple[Operation, bool]]]:
    """Return every subset of changes of names, in order; with each whether it was done by halves.

    Only a rename can be: the new name is there and the old one too.
    """
    options = [[None, (operation, False)] for operation in operations]
    for option, operation in zip(options, operations, strict=True):
        if isinstance(operation, Rename):
            option.append((operation, True))
    return [[done for done in chosen if done] for chosen in product(*options)]


def _change_names(tree: Tree, changes: list[tuple[Operation, bool]]) -> None:
    for operation, by_halves in changes:
        if by_halves:
            assert isinstance(operation, Rename)
            operation = Link(operation.folder, operation.name, operation.target)
        assert isinstance(operation, Link | Unlink | Rename)
        tree.apply(operation)


def _file_choices(
    content: bytes, operations: list[Operation], sector: int, chance: random.Random
) -> list[bytes]:
    """Return everything that a file may hold of which some changes were not synced."""
    found, whole = {content}, content
    for operation in operations:
        added = set()
        for old in found:
            if isinstance(operation, Truncate):
                added.add(_cut_to(old, operation.length))
            else:
                assert isinstance(operation, Write)
                added |= _written(old, operation, sector, chance)
        found |= added
        whole = _done(whole, operation)
        if len(found) > _MOST_CONTENTS:
            found = {content, whole, *chance.sample(sorted(found), _MOST_CONTENTS // 10)}
    return sorted(found)


def _done(content: bytes, operation: Operation) -> bytes:
    tree = Tree({operation[0]: content})
    tree.apply(operation)
    return tree.files[operation[0]]


def _cut_to(content: bytes, length: int) -> bytes:
    return content[:length].ljust(length, b"\0")


def _written(old: bytes, write: Write, sector: int, chance: random.Random) -> set[bytes]:
    end = write.offset + len(write.data)
    edges = range(write.offset // sector * sector, end, sector)
    sectors = [(max(edge, write.offset), min(edge + sector, end)) for edge in edges]
    found = set()
    for there in _subsets(len(sectors), chance):
        last = max((sectors[i][1] for i in range(len(sectors)) if there[i]), default=0)
        lengths = {len(old), end, *(stop for _, stop in sectors)}
        for length in (length for length in lengths if length >= max(last, len(old))):
            for filling in (b"\0", _STALE):
                data = bytearray(old.ljust(length, filling))
                for i, (start, stop) in enumerate(sectors):
                    if there[i]:
                        data[start:stop] = write.data[start - write.offset : stop - write.offset]
                found.add(bytes(data))
    return found


def _subsets(count: int, chance: random.Random) -> list[tuple[bool, ...]]:
    """Return every choice of sectors; of many sectors single ones, all but one, and some drawn."""
    if count <= _MOST_SECTORS:
        return list(product((False, True), repeat=count))
    single = [tuple(i == j for i in range(count)) for j in range(count)]
    beginnings = [tuple(i < j for i in range(count)) for j in range(count + 1)]
    drawn = [tuple(chance.random() < 0.5 for _ in range(count)) for _ in range(2 * count)]
    return [*single, *(tuple(not there for there in each) for each in single), *beginnings, *drawn]
