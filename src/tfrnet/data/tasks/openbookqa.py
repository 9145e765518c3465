"""OpenBookQA: four-way elementary science, in the format of lm-evaluation-harness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tfrnet.core.errors import InputError
from tfrnet.data.items import Item
from tfrnet.data.sources import HubFile, Source, need, read_rows
from tfrnet.data.task import Task

_FILES = {
    "train": "openbookqa/train.jsonl",
    "validation": "openbookqa/dev.jsonl",
    "test": "openbookqa/test.jsonl",
}


class OpenBookQA(Task):
    """Questions repeat, even across splits, so items are grouped by question."""

    name = "openbookqa"
    label = "OpenBookQA"
    splits = ("train", "validation", "test")
    evaluation = "test"
    heldout = "test"
    metric = "acc_norm"

    def _load(self, split: str, source: Source) -> list[Item]:
        rows = read_rows(_FILES[split], HubFile("allenai/openbookqa", "main", split), source)
        return [_item(row, f"openbookqa/{split}/{number}") for number, row in enumerate(rows)]

    def topic(self, item: Item) -> str:
        """The science fact behind the question; the hub's copy has none, so there the stem."""
        return str(item.fields.get("fact") or item.group)

    def floors(self, items: Sequence[Item]) -> dict[str, float]:
        """Taking the longest choice (the first of equals), and guessing."""
        longest = sum(max(item.choices, key=len) == item.answer for item in items)
        random = sum(1 / len(item.choices) for item in items)
        return {"longest choice": 100 * longest / len(items), "random": 100 * random / len(items)}

    def rephrased(self, item: Item) -> dict[str, Item]:
        """Other templates, and letters in place of the choices."""
        stem = item.fields["stem"]
        letters = tuple("ABCDEFGH"[: len(item.choices)])
        lines = "\n".join(f"{a}. {text}" for a, text in zip(letters, item.choices, strict=True))
        return {
            "question and answer": replace(item, prompt=f"Question: {stem}\nAnswer:"),
            "letters": replace(
                item,
                prompt=f"Question: {stem}\n{lines}\nAnswer:",
                choices=letters,
                answer=letters[item.choices.index(item.answer)],
            ),
            "cloze": replace(item, prompt=f"{stem} The answer is"),
            "role play": replace(
                item, prompt=f"You are a science teacher. A pupil asks: {stem}\nYou answer:"
            ),
        }


def _item(row: dict[str, Any], key: str) -> Item:
    stem, texts, labels = _parts(row, key)
    wanted = need(row, "answerKey", str, key).lstrip()
    if wanted not in labels:
        raise InputError(f"{key}: answerKey {wanted!r} is none of the labels {', '.join(labels)}")
    return Item(
        key,
        prompt=stem,
        answer=texts[labels.index(wanted)],
        choices=tuple(texts),
        group=f"stem: {' '.join(stem.lower().split())}",
        fields={"stem": stem, "fact": row.get("fact1")},
    )


def _parts(row: dict[str, Any], key: str) -> tuple[str, list[str], list[str]]:
    """Return stem, choices and labels of a row of the release, or of the hub's copy."""
    if "question_stem" in row:
        choices = need(row, "choices", dict, key)
        return need(row, "question_stem", str, key), choices["text"], choices["label"]
    question = need(row, "question", dict, key)
    choices = need(question, "choices", list, key)
    texts = [need(choice, "text", str, key) for choice in choices]
    return need(question, "stem", str, key), texts, [choice["label"] for choice in choices]


TASK = OpenBookQA
