"""BoolQ: yes/no questions about a passage, in the format of lm-evaluation-harness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tfrnet.data.items import Item
from tfrnet.data.sources import HubFile, Source, need, read_rows
from tfrnet.data.task import Task

CHOICES = ("no", "yes")
_FILES = {"train": "boolq/train.jsonl", "validation": "boolq/dev.jsonl"}


class BoolQ(Task):
    """Passages repeat, even across splits, so items are grouped by passage."""

    name = "boolq"
    label = "BoolQ"
    splits = ("train", "validation")
    evaluation = "validation"
    heldout = "validation"
    metric = "acc"
    fixed_choices = True

    def _load(self, split: str, source: Source) -> list[Item]:
        # The harness uses SuperGLUE's copy: its passage is "title -- passage", its label 0 or 1.
        hub = HubFile("aps/super_glue", "boolq", split)
        rows = read_rows(_FILES[split], hub, source)
        return [_item(row, f"boolq/{split}/{number}") for number, row in enumerate(rows)]

    def floors(self, items: Sequence[Item]) -> dict[str, float]:
        """Always answering yes, and guessing."""
        yes = sum(item.answer == "yes" for item in items)
        return {"always yes": 100 * yes / len(items), "random": 50.0}

    def rephrased(self, item: Item) -> dict[str, Item]:
        """Another order, other choices, and an injected start of the answer."""
        passage, question = item.fields["passage"], item.fields["question"]
        truths = ("False", "True")
        first = f"Question: {question}?\n"
        ending = f"\nQuestion: {question}?"
        return {
            "question first": replace(
                item,
                prompt=f"{first}{passage}\nAnswer:",
                passage=(len(first), len(first) + len(passage)),
            ),
            "true or false": replace(
                item,
                prompt=f"{passage}{ending} True or False?\nAnswer:",
                choices=truths,
                answer=truths[item.answer == "yes"],
            ),
            "choices named": replace(item, prompt=f"{passage}{ending} Answer yes or no.\nAnswer:"),
            "prefix injection": replace(
                item, prompt=f"{passage}{ending}\nAnswer: Sure, here is the answer:"
            ),
        }


def _item(row: dict[str, Any], key: str) -> Item:
    question = need(row, "question", str, key)
    text = need(row, "passage", str, key)
    passage = f"{row['title']} -- {text}" if row.get("title") else text
    right = bool(row["label"]) if "label" in row else need(row, "answer", bool, key)
    return Item(
        key,
        prompt=f"{passage}\nQuestion: {question}?\nAnswer:",
        answer=CHOICES[right],
        choices=CHOICES,
        group=f"passage: {text if 'title' in row else text.partition(' -- ')[2] or text}",
        passage=(0, len(passage)),
        fields={"passage": passage, "question": question},
    )


TASK = BoolQ
