"""Seeded samples that are the same on every machine and with every library version."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from tfrnet.data.items import Item


def sample_indices(population: int, size: int, *key: object) -> list[int]:
    """Return `size` of the first `population` integers, ascending; all of them if there are fewer.

    The order of hashes of (key, index) decides, not a random generator, whose version could matter.
    """
    if population <= size:
        return list(range(population))
    return sorted(seeded_order(population, *key)[:size])


def sample_by_group(
    groups: Sequence[str], size: int, *key: object, spare: bool = False
) -> list[int]:
    """Return `size` places, ascending, of one group after another in turn; with one group a sample.

    With `spare` no group gives more than half of its places before every group has given half: for
    data in which what is drawn will be missing.
    """
    by_group: dict[str, list[int]] = {}
    for place in seeded_order(len(groups), *key):
        by_group.setdefault(groups[place], []).append(place)
    ordered = [by_group[name] for name in sorted(by_group)]
    cuts = [(len(places) + 1) // 2 if spare else len(places) for places in ordered]
    first = zip_longest(*(places[:cut] for places, cut in zip(ordered, cuts, strict=True)))
    rest = zip_longest(*(places[cut:] for places, cut in zip(ordered, cuts, strict=True)))
    turns = [place for turn in (*first, *rest) for place in turn if place is not None]
    return sorted(turns[:size])


def seeded_order(population: int, *key: object) -> list[int]:
    """Return the first `population` integers in the order of their hashes."""
    return sorted(range(population), key=lambda i: _rank((*key, i)))


def shuffled(items: Sequence[Item], *key: object) -> list[Item]:
    """Return items in a seeded order, one of each stratum in turn.

    The order depends on the items' text, not on their positions, so adding or removing rows does
    not reorder the others.
    """
    strata: dict[str, list[Item]] = {}
    for item in sorted(items, key=lambda item: (_rank((*key, item.digest)), item.key)):
        strata.setdefault(item.stratum, []).append(item)
    turns = zip_longest(*(strata[name] for name in sorted(strata)))
    return [item for turn in turns for item in turn if item is not None]


def one_per_group(items: Iterable[Item]) -> list[Item]:
    """Return the first item of every group, in order."""
    firsts: dict[str, Item] = {}
    for item in items:
        firsts.setdefault(item.group, item)
    return list(firsts.values())


def _rank(key: tuple[object, ...]) -> bytes:
    return hashlib.sha256(repr(key).encode()).digest()
