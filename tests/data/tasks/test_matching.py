"""When a generated line is right."""

import pytest

from tfrnet.data.items import Item
from tfrnet.data.task import Task
from tfrnet.data.tasks import find_task
from tfrnet.data.tasks.arithmetic import begins_with


@pytest.mark.parametrize(
    ("line", "right"),
    [
        ("143", 1),
        ("143.", 1),
        ("143.5", 0),
        ("1,43", 1),
        ("1430", 0),
        ("The answer is 143", 0),
        ("", 0),
        ("-143", 0),
        ("143 apples", 1),
    ],
)
def test_the_rule_for_numbers(line, right):
    item = Item("arithmetic:2da/validation/0", "Question: What is 98 plus 45?", "143", "98, 45")
    assert find_task("arithmetic").is_right(line, item) == bool(right)


@pytest.mark.parametrize(("line", "number"), [("1,43.5", 1), ("14.3", 1), ("12,5", 12)])
def test_a_part_of_a_number_is_no_match(line, number):
    assert not begins_with(line, number)


def test_negative_numbers():
    assert begins_with("-55", -55)
    assert not begins_with("- 55", -55)
    assert not begins_with("55", -55)


@pytest.mark.parametrize(
    ("line", "right"),
    [
        ("Paris", 1),
        ("paris, of course", 1),
        ("Paris.", 1),
        ("Parisian", 0),
        ("It is Paris", 0),
        ("", 0),
    ],
)
def test_the_rule_for_words(line, right):
    class Capitals(Task):
        name = "capitals"
        _load = floors = rephrased = None

    item = Item("capitals/test/0", "The capital of France is", " Paris", "France")
    assert Capitals().is_right(line, item) == bool(right)
