"""What an oracle must never have seen: every item that the streams of some seeds forget.

The digests of these items are saved with the oracle's adapter, so anyone can check, without its
training data, that the oracle was not trained on anything that a stream forgets. Nor is it trained
on what says the same in other words: an item of the same group with the same answer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfrnet.core.errors import InputError
from tfrnet.data.examples import Example
from tfrnet.data.items import Item
from tfrnet.data.protocol import STREAMS, Sizes, Split, make_split
from tfrnet.data.sources import Source

FILE = "without.json"
SCHEMA = "tfrnet.without/1"
# 64 bits: two of a million items agree by chance once in 37 million sets.
_DIGITS = 16


@dataclass(frozen=True)
class Forgotten:
    """The forget items of all streams of some seeds, by digest.

    `answers` are digests of their groups with their answers. An oracle of before has none: it may
    have been trained on other items of the same group with the same answer.
    """

    seeds: tuple[int, ...]
    streams: tuple[str, ...]
    digests: frozenset[str]
    answers: frozenset[str] = frozenset()

    def refuse_known(self, examples: Iterable[Example]) -> None:
        """Raise if one of the examples is among the forgotten."""
        known = [example for example in examples if digest_of(example) in self.digests]
        if known:
            raise InputError(
                f"{len(known)} of the training examples are to be forgotten, the first is "
                f"{known[0].prompt[-60:]!r}; an oracle must not know them"
            )

    def left_out(self, items: Sequence[Item]) -> list[Item]:
        """Return the items without those that are forgotten, or that say the same."""
        return [
            item
            for item in items
            if digest_of(item.example()) not in self.digests
            and digest_of_answer(item) not in self.answers
        ]

    def missing(self, split: Split) -> int:
        """Return how many forget items of a split were not left out."""
        return sum(digest_of(item.example()) not in self.digests for item in split.forget)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, from which the text cannot be recovered."""
        return {
            "schema": SCHEMA,
            "seeds": list(self.seeds),
            "streams": list(self.streams),
            "digests": sorted(self.digests),
            "answers": sorted(self.answers),
        }

    def write(self, folder: Path) -> None:
        """Write the digests into an adapter's folder."""
        (folder / FILE).write_text(json.dumps(self.to_dict()) + "\n")


def forgotten_items(
    seeds: Sequence[int],
    source: Source,
    streams: Sequence[str] = STREAMS,
    sizes: Sizes | None = None,
) -> Forgotten:
    """Return what the streams of these seeds forget."""
    if not seeds or min(seeds) < 0:
        raise InputError("--without needs one or more seeds, none of them below 0")
    splits = [make_split(stream, seed, source, sizes) for seed in seeds for stream in streams]
    items = [item for split in splits for item in split.forget]
    return Forgotten(
        tuple(sorted(set(seeds))),
        tuple(streams),
        frozenset(digest_of(item.example()) for item in items),
        frozenset(map(digest_of_answer, items)),
    )


def read_forgotten(folder: Path) -> Forgotten:
    """Return what an oracle was trained without."""
    file = folder / FILE
    try:
        found = json.loads(file.read_text())
        if found["schema"] != SCHEMA:
            raise InputError(f"{file} has schema {found['schema']}, not {SCHEMA}")
        return Forgotten(
            tuple(found["seeds"]),
            tuple(found["streams"]),
            frozenset(found["digests"]),
            frozenset(found.get("answers", ())),
        )
    except FileNotFoundError:
        raise InputError(
            f"{folder} does not say what it was trained without; make an oracle with "
            "'tfrnet prepare --without SEEDS'"
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{file} is not a file made by 'tfrnet prepare --without' ({error!r})"
        ) from None


def digest_of(example: Example) -> str:
    """Return a digest of a prompt and its answer."""
    return _digest(example.prompt, example.answer)


def digest_of_answer(item: Item) -> str:
    """Return a digest of an item's group and its answer: what the item says, in any words."""
    return _digest(item.group, item.answer.strip())


def _digest(*texts: str) -> str:
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:_DIGITS]
