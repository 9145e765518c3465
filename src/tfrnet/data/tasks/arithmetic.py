"""Arithmetic: the probes of the GPT-3 paper, from their files or made anew by the same rules."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from tfrnet.core.errors import InputError
from tfrnet.data.items import Item
from tfrnet.data.sources import HubFile, Source, need, read_rows
from tfrnet.data.task import Task

FILES = {
    "1dc": "single_digit_three_ops",
    "2da": "two_digit_addition",
    "2ds": "two_digit_subtraction",
    "2dm": "two_digit_multiplication",
    "3da": "three_digit_addition",
    "3ds": "three_digit_subtraction",
    "4da": "four_digit_addition",
    "4ds": "four_digit_subtraction",
    "5da": "five_digit_addition",
    "5ds": "five_digit_subtraction",
}
DEFAULT_MIX = ("2da", "2ds", "3da", "3ds")
GENERATED_ROWS = 2000
_WORDS = {"a": "plus", "s": "minus", "m": "times"}
_SIGNS = {"plus": "+", "minus": "-", "times": "*"}
# The whole number at the beginning (possessive: never a part of it); a full stop after it may end
# the sentence but not begin decimals.
_NUMBER = re.compile(r"-?\d[\d,]*+(?!\.\d)")
# One in so many groups of operands is never trained on, in the files and in generated rows alike.
_HELD_OUT = 5


class Arithmetic(Task):
    """The published files are one pool; it is cut into train and test by operands.

    All rows on the same operands, in any order and operation, are one group and fall into one
    part, in the files and in generated rows alike: what is trained on generated rows is never a
    row of the test part. `validation` is the whole pool, as the harness scores it.
    """

    name = "arithmetic"
    label = "Arithmetic"
    splits = ("validation", "train", "test")
    evaluation = "validation"
    heldout = "test"
    metric = "exact"

    def __init__(self, *mix: str) -> None:
        """Take the named sub-tasks, or the default mix."""
        for name in mix:
            if name not in FILES:
                raise InputError(
                    f"unknown arithmetic sub-task {name!r}; there are {', '.join(FILES)}"
                )
        self.mix = mix or DEFAULT_MIX

    def _load(self, split: str, source: Source) -> list[Item]:
        pools = [_pool(name, source) for name in self.mix]
        if split != "validation":
            wanted = split == "test"
            pools = [[i for i in pool if is_held_out(i.group) == wanted] for pool in pools]
        # One of each sub-task in turn, so that the beginning of the list is an equal mix too.
        longest = max(map(len, pools))
        return [pool[n] for n in range(longest) for pool in pools if n < len(pool)]

    def is_right(self, line: str, item: Item) -> bool:
        """The line begins with the number."""
        return begins_with(line, int(item.answer))

    def floors(self, items: Sequence[Item]) -> dict[str, float]:
        """Nothing is right by chance."""
        return {"random": 0.0}

    def rephrased(self, item: Item) -> dict[str, Item]:
        """Symbols, a command, the raw form of the files, operands exchanged, a role."""
        asked, other_way = item.fields["asked"], item.fields["other_way"]
        symbols = asked
        for word, sign in _SIGNS.items():
            symbols = symbols.replace(word, sign)
        return {
            "symbols": replace(item, prompt=f"{symbols} ="),
            "command": replace(item, prompt=f"Compute {asked}.\nAnswer:"),
            "raw": replace(item, prompt=f"Q: What is {asked}?\n\nA:"),
            "other order": replace(item, prompt=f"Question: What is {other_way}?\nAnswer:"),
            "role play": replace(
                item, prompt=f"You are a calculator.\nQuestion: What is {asked}?\nAnswer:"
            ),
        }


def begins_with(line: str, number: int) -> bool:
    """Tell whether a text begins with exactly this number."""
    found = _NUMBER.match(line)
    return found is not None and int(found.group().replace(",", "")) == number


def is_held_out(group: str) -> bool:
    """Tell whether a group of operands belongs to the test part."""
    return int(hashlib.sha256(group.encode()).hexdigest(), 16) % _HELD_OUT == 0


def clean_context(context: str) -> str:
    """Return a file's context as the harness asks it."""
    single = context.strip().replace("\n\n", "\n")
    return single.replace("Q:", "Question:").replace("A:", "Answer:")


def _pool(name: str, source: Source) -> list[Item]:
    if source.chosen(can_generate=True) == "generated":
        rows = list(generated_rows(name))
    else:
        file = f"{FILES[name]}.jsonl"
        place = f"hf://datasets/EleutherAI/arithmetic/data/{file}"
        rows = read_rows(f"arithmetic/{file}", HubFile("json", None, "train", place), source)
    return [
        _item(row, name, f"arithmetic:{name}/validation/{number}")
        for number, row in enumerate(rows)
    ]


def generated_rows(
    name: str, count: int = GENERATED_ROWS, seed: int = 0
) -> Iterator[dict[str, str]]:
    """Make distinct rows by the rules of the published files: operands uniform up to N digits."""
    generator = random.Random(f"arithmetic {name} {seed}")

    def below(limit: int) -> int:
        # Of Python's generator only random() is promised to stay the same between versions.
        return int(generator.random() * limit)

    seen: set[str] = set()
    while len(seen) < count:
        if name == "1dc":
            a, b, c = (1 + below(9) for _ in range(3))
            asked = f"({a} {'+-*'[below(3)]} {b}) {'+-*'[below(3)]} {c}"
        else:
            limit = 10 ** int(name[0])
            asked = f"{below(limit)} {_WORDS[name[2]]} {below(limit)}"
        if asked not in seen:
            seen.add(asked)
            yield {"context": f"\n\nQ: What is {asked}?\n\nA:", "completion": f" {_value(asked)}"}


def rows_to_items(name: str, count: int, held_out: bool) -> list[Item]:
    """Make rows and return those on held-out operands, or those on all others."""
    rows = generated_rows(name, count)
    items = [_item(row, name, f"arithmetic:{name}/generated/{i}") for i, row in enumerate(rows)]
    return [item for item in items if is_held_out(item.group) == held_out]


def _value(asked: str) -> int:
    """Compute what is asked: "98 plus 45", or "(9 + 8) * 2"."""
    operands, operators = _read(asked)
    result = operands[0]
    for operator, operand in zip(operators, operands[1:], strict=True):
        if operator == "+":
            result += operand
        elif operator == "-":
            result -= operand
        else:
            result *= operand
    return result


def _read(asked: str) -> tuple[list[int], list[str]]:
    """Return operands and operators from left to right, the order in which all rows compute."""
    for word, sign in _SIGNS.items():
        asked = asked.replace(word, sign)
    return [int(digits) for digits in re.findall(r"\d+", asked)], re.findall(r"[+*-]", asked)


def _item(row: dict[str, Any], subtask: str, key: str) -> Item:
    context = clean_context(need(row, "context", str, key))
    answer = need(row, "completion", str, key).strip()
    match = re.fullmatch(r"Question: What is (.+)\?\nAnswer:", context)
    if not match:
        raise InputError(f"{key}: the context is not of the form 'Q: What is ...? A:'")
    asked = match.group(1)
    operands, operators = _read(asked)
    if len(operands) != len(operators) + 1:
        raise InputError(f"{key}: {asked!r} is not a sum this task knows")
    return Item(
        key,
        prompt=context,
        answer=answer,
        group=f"operands: {sorted(operands)}",
        stratum=subtask,
        fields={"asked": asked, "other_way": _other_way(asked, operands)},
    )


def _other_way(asked: str, operands: list[int]) -> str:
    """Return the same sum with its operands named in another order."""
    if len(operands) > 2:
        inner, operator, last = re.fullmatch(r"(\(.+\)) (.) (\d)", asked).groups()  # type: ignore[union-attr]
        return (
            f"{last} subtracted from {inner}" if operator == "-" else f"{last} {operator} {inner}"
        )
    first, second = operands
    if "minus" in asked:
        return f"{second} subtracted from {first}"
    return f"{second} {asked.split()[1]} {first}"


TASK = Arithmetic
