"""The demo's facts, written for this project and all known to the default model.

`facts.jsonl` holds only facts whose right answer the default model ranks above three wrong ones;
`docs/demo-corpus.md` says how many were written to find them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from tfrnet.data.examples import Example
from tfrnet.data.items import Question
from tfrnet.data.requests import Request
from tfrnet.data.sampling import sample_indices


@dataclass(frozen=True)
class Fact:
    """The beginning of a sentence, its true ending and three wrong ones."""

    id: str
    topic: str
    prompt: str
    answer: str
    wrong: tuple[str, ...]

    def example(self) -> Example:
        """Return the fact as an example to forget or to keep."""
        return Example(self.prompt, self.answer)

    def question(self) -> Question:
        """Return the fact as a question; the right answer comes first."""
        return Question(self.prompt, (self.answer, *self.wrong))


@dataclass(frozen=True)
class DemoSplit:
    """The requests and the sets of facts. The sets do not overlap."""

    requests: list[Request]
    forgotten: list[Fact]
    same_topic: list[Fact]
    others: list[Fact]
    retain: list[Fact]


def load_facts() -> list[Fact]:
    """Read the corpus."""
    text = files("tfrnet.demo").joinpath("facts.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    return [Fact(**(row | {"wrong": tuple(row["wrong"])})) for row in rows]


def split(
    facts: Sequence[Fact],
    topic: str,
    requests: int = 5,
    per_request: int = 8,
    kept: int = 24,
    others: int = 96,
    seed: int = 0,
) -> DemoSplit:
    """Draw the requests from one topic, and retain data and `others` from all other topics."""
    on_topic = [fact for fact in facts if fact.topic == topic]
    off_topic = [fact for fact in facts if fact.topic != topic]
    forgotten, rest = _draw(on_topic, requests * per_request, "forgotten", seed)
    same_topic, _ = _draw(rest, kept, "same topic", seed)
    evaluated, retain = _draw(off_topic, others, "others", seed)
    stream = [
        Request(
            f"{topic}-{number + 1}",
            tuple(f.example() for f in forgotten[number * per_request :][:per_request]),
        )
        for number in range(requests)
    ]
    return DemoSplit(stream, forgotten, same_topic, evaluated, retain)


def _draw(facts: Sequence[Fact], size: int, part: str, seed: int) -> tuple[list[Fact], list[Fact]]:
    chosen = set(sample_indices(len(facts), size, "demo", part, seed))
    drawn = [fact for i, fact in enumerate(facts) if i in chosen]
    return drawn, [fact for i, fact in enumerate(facts) if i not in chosen]
