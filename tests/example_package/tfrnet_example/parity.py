"""Parity: is a number even or odd?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tfrnet.data.items import Item
from tfrnet.data.sources import Source
from tfrnet.data.task import Task

CHOICES = ("even", "odd")


class Parity(Task):
    """A thousand questions that need no file; every fourth pair of numbers is held out."""

    name = "parity"
    label = "Parity"
    splits = ("train", "test")
    evaluation = "test"
    heldout = "test"
    metric = "acc"
    fixed_choices = True

    def _load(self, split: str, source: Source) -> list[Item]:
        numbers = [n for n in range(1000) if (n // 2 % 4 == 3) == (split == "test")]
        return [_item(number, split) for number in numbers]

    def floors(self, items: Sequence[Item]) -> dict[str, float]:
        """A coin."""
        return {"random": 50.0}

    def rephrased(self, item: Item) -> dict[str, Item]:
        """The same as a statement to go on with."""
        return {"statement": replace(item, prompt=f"The number {item.fields['number']} is")}


def _item(number: int, split: str) -> Item:
    return Item(
        key=f"parity/{split}/{number}",
        prompt=f"Question: Is {number} even or odd?\nAnswer:",
        answer=CHOICES[number % 2],
        choices=CHOICES,
        group=f"number: {number}",
        fields={"number": number},
    )


TASK = Parity
