"""A task of one's own that lacks something is refused in one line."""

from __future__ import annotations

import pytest

from tests.example_package.tfrnet_example.parity import Parity
from tfrnet import InputError
from tfrnet.data.task import Task, task_problem
from tfrnet.data.tasks import find_task


class Bare(Task):
    name = "mine"


class Unwritten(Task):
    name, label, splits, metric = "mine", "Mine", ("train", "test"), "acc"
    evaluation = heldout = "test"


class WrongMetric(Parity):
    metric = "accuracy"  # type: ignore[assignment]


class WrongSplit(Parity):
    heldout = "dev"


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (object, "it is not a subclass of tfrnet.data.task.Task"),
        (Bare, "its class does not define label, splits, evaluation, heldout, metric"),
        (Unwritten, "its class does not define _load, floors, rephrased"),
        (WrongMetric, "its metric is 'accuracy', not acc or acc_norm or exact"),
        (WrongSplit, "its heldout split 'dev' is none of its splits, train, test"),
    ],
)
def test_what_a_task_lacks_is_said(task, words):
    assert task_problem(task) == words


def test_a_whole_task_lacks_nothing():
    assert task_problem(Parity) == ""


def test_such_a_task_is_refused_where_it_is_found(monkeypatch):
    monkeypatch.setattr("tfrnet.data.tasks.boolq.TASK", WrongSplit)
    with pytest.raises(InputError) as refused:
        find_task("boolq")
    assert str(refused.value) == (
        "the task 'boolq' of tfrnet.data.tasks.boolq cannot be used: "
        "its heldout split 'dev' is none of its splits, train, test"
    )
