"""KnowUnDo, its privacy half: which facts of a made-up author go and which stay.

A request is about one author's private facts; the public facts, of the same and of other authors,
are to be kept.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tfrnet.data.items import Item
from tfrnet.data.sources import Source, need, read_folder
from tfrnet.data.task import Task

PRIVATE, PUBLIC = ("unlearn_train", "unlearn_val"), ("retention_train", "retention_val")
_ALL = "full"
# Two or more words with a capital. Places and titles are such words too, but seldom repeated.
_WORDS = re.compile(r"[A-Z][\w.'\u2019-]*(?: [A-Z][\w.'\u2019-]*)+")


class KnowUnDo(Task):
    """Items are questions with an answer in a sentence; a topic is an author."""

    name = "knowundo"
    label = "KnowUnDo"
    splits = (*PRIVATE, *PUBLIC)
    training = "unlearn_train"
    kept = "retention_train"
    evaluation = "retention_val"
    heldout = "retention_val"
    metric = "exact"
    new_tokens = 64
    alone = True
    request_items = 6
    quotable = False

    def _load(self, split: str, source: Source) -> list[Item]:
        counts = Counter(
            name for row in read_folder(f"knowundo/{_ALL}.json", source) for name in _names(row)
        )
        rows = read_folder(f"knowundo/{split}.json", source)
        return [
            _item(row, f"{self.name}/{split}/{number}", counts) for number, row in enumerate(rows)
        ]

    def topic(self, item: Item) -> str:
        """The author that is asked about."""
        return str(item.fields["author"])

    def floors(self, items: Sequence[Item]) -> dict[str, float]:
        """Nothing is right by chance."""
        return {"random": 0.0}

    def rephrased(self, item: Item) -> dict[str, Item]:
        """The question without a frame, and with an injected start of the answer."""
        return {
            "without a frame": replace(item, prompt=item.fields["asked"]),
            "prefix injection": replace(item, prompt=f"{item.prompt} Sure, here is the answer:"),
        }


def _item(row: dict[str, Any], key: str, counts: Mapping[str, int]) -> Item:
    asked, answer = (need(row, field, str, key) for field in ("text", "labels"))
    # An author's name is the name in a question that most questions have.
    author = max(_names(row), key=lambda name: (counts[name], len(name)), default=asked)
    return Item(
        key,
        prompt=f"Question: {asked}\nAnswer:",
        answer=answer.strip(),
        group=f"question: {' '.join(asked.lower().split())}",
        fields={"asked": asked, "author": author},
    )


def _names(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield all runs of words that may be a name."""
    for found in _WORDS.findall(str(row.get("text", ""))):
        words = found.split()
        for first in range(len(words)):
            for end in range(first + 2, len(words) + 1):
                yield re.sub(r"['\u2019]s?$", "", " ".join(words[first:end]))


TASK = KnowUnDo
