"""The base class of tasks: datasets of questions with a right answer."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, get_args

from tfrnet.core.errors import InputError
from tfrnet.data.items import Item
from tfrnet.data.sources import Source

Metric = Literal["acc", "acc_norm", "exact"]


_REQUIRED = ("name", "label", "splits", "evaluation", "heldout", "metric")


class Task(ABC):
    """One dataset. To add one, assign a subclass to `TASK` in a new file of `data/tasks/`.

    In another package, declare it as an entry point of `tfrnet.tasks`. Requests and retain data
    come from the `training` split; `evaluation` is the split that lm-evaluation-harness scores. An
    item's key is task/split/row, by which a split's manifest finds it.
    """

    # The name on the command line, and in tables.
    name: str
    label: ClassVar[str]
    splits: ClassVar[tuple[str, ...]]
    training: ClassVar[str] = "train"
    evaluation: str
    heldout: ClassVar[str]
    metric: ClassVar[Metric]
    # Whether every question has the same choices, so that a bias towards one can be measured.
    fixed_choices: ClassVar[bool] = False
    # The most tokens of a generated answer.
    new_tokens: ClassVar[int] = 10
    # The most tokens of a prompt with its answer; of a longer prompt the beginning is cut off.
    max_length: ClassVar[int] = 256
    # The split that retain and guard data comes from; empty: from `training`, like the requests.
    kept: ClassVar[str] = ""
    # Whether its stream has nothing of other tasks: for models that know this one only.
    alone: ClassVar[bool] = False
    # How many items of one topic make a request; 0: the items of a request have nothing in common.
    request_items: ClassVar[int] = 0
    # Whether a generated answer may stand in published results; if not, only its digest does.
    quotable: ClassVar[bool] = True
    # Whether no word of it may be written anywhere, not even into a file of samples.
    secret: bool = False

    def load(self, split: str, source: Source) -> list[Item]:
        """Return a split in file order."""
        if split not in self.splits:
            raise InputError(f"{self.name} has no split {split!r}; it has {', '.join(self.splits)}")
        items = self._load(split, source)
        if not items:
            raise InputError(f"the split {split!r} of {self.name} is empty")
        return items

    @property
    def pool(self) -> str:
        """The split that holds what is to be kept."""
        return self.kept or self.training

    @abstractmethod
    def _load(self, split: str, source: Source) -> list[Item]:
        """Return the items of a known split."""

    def is_right(self, line: str, item: Item) -> bool:
        """Return whether a generated line is right: by default, if it starts with the answer."""
        answer = re.escape(item.answer.strip())
        return re.match(rf"{answer}(?!\w)", line, re.IGNORECASE) is not None

    def topic(self, item: Item) -> str:
        """Return what an item is about: those of one topic may suffer when one is forgotten."""
        return item.group

    @abstractmethod
    def floors(self, items: Sequence[Item]) -> dict[str, float]:
        """Return the accuracy of chance baselines on these items, in percent."""

    @abstractmethod
    def rephrased(self, item: Item) -> dict[str, Item]:
        """Return rephrased versions of the question, by name."""


def task_problem(task: Any) -> str:
    """Return what a task's class lacks or has wrong, or nothing."""
    if not (isinstance(task, type) and issubclass(task, Task)):
        return f"it is not a subclass of {Task.__module__}.Task"
    if missing := [name for name in _REQUIRED if not hasattr(task, name)]:
        return f"its class does not define {', '.join(missing)}"
    if unwritten := sorted(task.__abstractmethods__):
        return f"its class does not define {', '.join(unwritten)}"
    if task.metric not in get_args(Metric):
        return f"its metric is {task.metric!r}, not {' or '.join(get_args(Metric))}"
    for name in ("training", "evaluation", "heldout", "kept"):
        if (split := getattr(task, name)) not in (*task.splits, ""):
            return f"its {name} split {split!r} is none of its splits, {', '.join(task.splits)}"
    return ""
