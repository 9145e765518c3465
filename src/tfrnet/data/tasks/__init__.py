"""The tasks by name: files of this folder, and entry points of `tfrnet.tasks`."""

from __future__ import annotations

from inspect import signature

from tfrnet.core.errors import InputError
from tfrnet.core.registry import Registry
from tfrnet.data.task import Task, task_problem

TASKS = Registry("task", "tfrnet.data.tasks", "tfrnet.tasks", "TASK", "name", task_problem)


def task_names() -> list[str]:
    """Return the names of all tasks, without importing them."""
    return TASKS.names()


def find_task(name: str) -> Task:
    """Return a task by its name; options may follow, as in `arithmetic:2da+3da`."""
    base, colon, options = name.partition(":")
    make: type[Task] = TASKS.find(base)
    if colon and not signature(make).parameters:
        raise InputError(f"{base} takes no options, but {options!r} was given")
    return make(*options.split("+")) if colon else make()
