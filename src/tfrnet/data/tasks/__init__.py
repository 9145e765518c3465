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
    given = options.split("+") if colon else []
    try:
        signature(make).bind(*given)
    except TypeError:
        most = len(signature(make).parameters)
        takes = f"at most {most} options" if most else "no options"
        raise InputError(f"{base} takes {takes}, but {options!r} was given") from None
    return make(*given)
