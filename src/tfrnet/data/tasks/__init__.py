"""The tasks. Every file here is one dataset with its `Task`, found by its name."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from inspect import signature

from tfrnet.core.errors import InputError
from tfrnet.data.task import Task


def task_names() -> list[str]:
    """Return the names of all tasks."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def find_task(name: str) -> Task:
    """Return a task by its name; options may follow, as in `arithmetic:2da+3da`."""
    base, colon, options = name.partition(":")
    if base not in task_names():
        raise InputError(f"unknown task {base!r}; the tasks are {', '.join(task_names())}")
    make = import_module(f"{__name__}.{base}").make
    if colon and not signature(make).parameters:
        raise InputError(f"{base} takes no options, but {options!r} was given")
    task: Task = make(*options.split("+")) if colon else make()
    return task
