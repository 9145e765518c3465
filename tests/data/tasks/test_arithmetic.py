import re

import pytest

from tests.datasets import REAL, needs_real, real_source, write_lines
from tfrnet.core.errors import InputError
from tfrnet.data.jsonlines import json_lines
from tfrnet.data.sources import Source
from tfrnet.data.tasks import find_task
from tfrnet.data.tasks.arithmetic import (
    DEFAULT_MIX,
    FILES,
    clean_context,
    generated_rows,
    is_held_out,
)

GENERATED = Source("generated")


def test_the_context_is_cleaned_as_the_harness_does():
    """V6."""
    raw = "\n\nQ: What is 98 plus 45?\n\nA:"
    assert clean_context(raw) == "Question: What is 98 plus 45?\nAnswer:"


def _by_python(asked: str) -> int:
    for word, sign in (("plus", "+"), ("minus", "-"), ("times", "*")):
        asked = asked.replace(word, sign)
    assert re.fullmatch(r"[\d+*() -]+", asked)
    return eval(asked)


@pytest.mark.parametrize("name", FILES)
def test_generated_rows_are_right_distinct_and_of_the_published_form(name):
    rows = list(generated_rows(name, count=300))
    assert len({row["context"] for row in rows}) == 300
    for row in rows:
        asked = re.fullmatch(r"\n\nQ: What is (.+)\?\n\nA:", row["context"]).group(1)
        assert row["completion"] == f" {_by_python(asked)}"
        operands = [int(digits) for digits in re.findall(r"\d+", asked)]
        limit = 10 ** int(name[0])
        assert all(0 <= operand < limit for operand in operands)
        if name == "1dc":
            assert re.fullmatch(r"\([1-9] [+*-] [1-9]\) [+*-] [1-9]", asked)


def test_generated_rows_never_change():
    """They are part of every number that is measured on them."""
    rows = [next(generated_rows(name))["context"].strip() for name in ("2da", "3ds", "1dc")]
    asked = ["12 plus 59", "834 minus 201", "(1 * 9) + 4"]
    assert rows == [f"Q: What is {text}?\n\nA:" for text in asked]


def test_the_default_mix_takes_its_sub_tasks_in_turn():
    items = find_task("arithmetic").load("validation", GENERATED)
    assert DEFAULT_MIX == ("2da", "2ds", "3da", "3ds")
    assert [item.stratum for item in items[:8]] == [*DEFAULT_MIX, *DEFAULT_MIX]
    assert len(items) == 8000


def test_the_mix_can_be_chosen():
    items = find_task("arithmetic:1dc+5ds").load("validation", GENERATED)
    assert {item.stratum for item in items} == {"1dc", "5ds"}
    assert find_task("arithmetic:1dc+5ds+1dc").load("validation", GENERATED) == items
    with pytest.raises(InputError, match="unknown arithmetic sub-task '9da'; choose from 1dc, 2da"):
        find_task("arithmetic:9da")


def test_train_and_test_share_no_operands_and_make_up_the_pool():
    task = find_task("arithmetic:2da+2ds+3da")
    whole, train, test = (task.load(split, GENERATED) for split in task.splits)
    assert {i.group for i in train}.isdisjoint(i.group for i in test)
    assert sorted(i.key for i in [*train, *test]) == sorted(i.key for i in whole)
    assert 0.15 < len(test) / len(whole) < 0.25


def test_a_group_is_the_operands_in_any_order_and_operation(tmp_path):
    rows = [
        {"context": f"\n\nQ: What is {asked}?\n\nA:", "completion": f" {_by_python(asked)}"}
        for asked in ("98 plus 45", "45 plus 98", "45 minus 98", "45 plus 99")
    ]
    write_lines(tmp_path / "arithmetic" / "two_digit_addition.jsonl", rows)
    items = find_task("arithmetic:2da").load("validation", Source("folder", tmp_path))
    assert len({item.group for item in items[:3]}) == 1
    assert items[3].group != items[0].group
    assert isinstance(is_held_out(items[0].group), bool)


@pytest.mark.parametrize(
    ("asked", "symbols", "other_way"),
    [
        ("98 plus 45", "98 + 45 =", "What is 45 plus 98?"),
        ("98 minus 45", "98 - 45 =", "What is 45 subtracted from 98?"),
        ("12 times 7", "12 * 7 =", "What is 7 times 12?"),
        ("(9 + 8) * 2", "(9 + 8) * 2 =", "What is 2 * (9 + 8)?"),
        ("(4 * 7) - 3", "(4 * 7) - 3 =", "What is 3 subtracted from (4 * 7)?"),
    ],
)
def test_other_wordings_ask_for_the_same_number(asked, symbols, other_way, tmp_path):
    row = {"context": f"\n\nQ: What is {asked}?\n\nA:", "completion": f" {_by_python(asked)}"}
    write_lines(tmp_path / "arithmetic" / "two_digit_addition.jsonl", [row])
    task = find_task("arithmetic:2da")
    (item,) = task.load("validation", Source("folder", tmp_path))
    wordings = task.rephrased(item)
    assert len(wordings) == 5
    assert {other.answer for other in wordings.values()} == {item.answer}
    assert wordings["symbols"].prompt == symbols
    assert other_way in wordings["other order"].prompt
    assert wordings["raw"].prompt == row["context"].strip()


def test_a_row_of_another_form_is_named(tmp_path):
    row = {"context": "\n\nQ: How are you?\n\nA:", "completion": " 3"}
    write_lines(tmp_path / "arithmetic" / "two_digit_addition.jsonl", [row])
    with pytest.raises(InputError, match="arithmetic:2da/validation/0: the context is not of the"):
        find_task("arithmetic:2da").load("validation", Source("folder", tmp_path))


@needs_real
@pytest.mark.parametrize("name", FILES)
def test_every_published_row_is_read_and_right(name):
    items = find_task(f"arithmetic:{name}").load("validation", real_source())
    raw = [row for _, row in json_lines(REAL / "arithmetic" / f"{FILES[name]}.jsonl")]
    assert len(items) == len(raw) == 2000
    for item, row in zip(items, raw, strict=True):
        assert item.example().joined == clean_context(row["context"]) + row["completion"]
        assert item.answer == str(_by_python(item.fields["asked"]))


@needs_real
@pytest.mark.parametrize(("name", "pairs"), [("2da", 372), ("2dm", 350), ("2ds", 388)])
def test_commuted_rows_are_kept_together(name, pairs):
    """So many rows have their commuted (for subtraction: sign-flipped) partner in the file."""
    items = find_task(f"arithmetic:{name}").load("validation", real_source())
    groups = [item.group for item in items]
    assert sum(groups.count(group) > 1 for group in groups) == pairs
