"""Seeded samples that are the same on every machine and with every library version."""

from __future__ import annotations

import hashlib


def sample_indices(population: int, size: int, *key: object) -> list[int]:
    """Return `size` of the first `population` integers, ascending; all of them if there are fewer.

    The order of hashes of (key, index) decides, so no random generator's version matters.
    """
    if population <= size:
        return list(range(population))

    def rank(index: int) -> bytes:
        return hashlib.sha256(repr((*key, index)).encode()).digest()

    return sorted(sorted(range(population), key=rank)[:size])
