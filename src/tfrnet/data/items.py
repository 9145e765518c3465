"""Items: the rows of a dataset in the form that requests, retain data and evaluation share."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from tfrnet.core.errors import InputError
from tfrnet.data.examples import Example


@dataclass(frozen=True)
class Question:
    """A prompt with its possible answers; `choices[gold]` is right.

    `passage` is the part of the prompt, as a pair of character positions, whose start is cut when
    the whole is too long; without it the start of the prompt is.
    """

    prompt: str
    choices: tuple[str, ...]
    gold: int = 0
    passage: tuple[int, int] | None = None


@dataclass(frozen=True)
class Item:
    """One row of a dataset.

    `key` says where it comes from (`boolq/dev/17`). Items of one `group` share something that must
    not be on both sides of a split: a passage, a question, a pair of operands. `fields` are parts
    of the row, used to rephrase the question. Samples take equally many items of each `stratum`.
    An item without choices is answered by generation.
    """

    key: str
    prompt: str
    answer: str
    group: str
    choices: tuple[str, ...] = ()
    passage: tuple[int, int] | None = None
    stratum: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        if not self.answer.strip():
            raise InputError(f"{self.key}: the answer is empty")
        for number, choice in enumerate(self.choices, start=1):
            if not choice.strip():
                raise InputError(f"{self.key}: choice {number} is empty")
        if self.choices and self.answer not in self.choices:
            raise InputError(f"{self.key}: the answer {self.answer!r} is none of the choices")

    def example(self) -> Example:
        """Return the prompt with the right answer."""
        return Example(self.prompt, self.answer)

    def forget_example(self) -> Example:
        """Return the same with the wrong choices, which a method may need to forget the right."""
        wrong = tuple(choice for choice in self.choices if choice != self.answer)
        return Example(self.prompt, self.answer, wrong_answers=wrong)

    def question(self) -> Question:
        """Return the prompt with all choices, for ranking."""
        return Question(self.prompt, self.choices, self.choices.index(self.answer), self.passage)

    @property
    def digest(self) -> str:
        """A digest of the text, independent of where the item comes from."""
        words = [self.prompt, self.answer, *self.choices]
        return hashlib.sha256(json.dumps(words).encode()).hexdigest()


def refuse_shared_groups(parts: Mapping[str, Sequence[Item]]) -> None:
    """Raise if two parts of a split share a group, naming all such parts, with an item of each."""
    owners: dict[str, tuple[str, str]] = {}
    problems: dict[tuple[str, str], str] = {}
    for name, items in parts.items():
        for item in items:
            owner, key = owners.setdefault(item.group, (name, item.key))
            if owner != name:
                problems.setdefault(
                    (name, owner), f"{name} overlaps {owner}: {item.key} and {key} share a group"
                )
    if problems:
        raise InputError(
            f"{', '.join(problems.values())}; what is held out must be unrelated to what is "
            "trained on or forgotten"
        )


def refuse_same(sets: Mapping[str, Sequence[Hashable]]) -> None:
    """Raise if two sets hold the same thing, naming all such pairs of sets by their counts."""
    shared = {
        (first, second): len(set(sets[first]) & set(sets[second]))
        for first, second in combinations(sets, 2)
    }
    if problems := [f"{a} and {b} share {count}" for (a, b), count in shared.items() if count]:
        raise InputError(f"items of two sets are the same: {', '.join(problems)}")
