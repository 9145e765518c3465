"""Witnesses: examples that neither a step nor the guard has used, and how their loss changed."""

from __future__ import annotations

from collections.abc import Mapping

from tfrnet.core.errors import InputError
from tfrnet.evaluation.metrics.tofu_scores import Numbers, as_numbers


def witness_ratios(before: Mapping[str, Numbers], now: Mapping[str, Numbers]) -> dict[str, float]:
    """Return each group's mean loss relative to the one before; 1 if nothing changed.

    A group is a task, or general text. The groups are not averaged: the worst one counts.
    """
    if before.keys() != now.keys():
        raise InputError("witnesses need the same groups before and now")
    ratios = {}
    for group, values in before.items():
        start, end = as_numbers(values, "loss"), as_numbers(now[group], "loss")
        if start.shape != end.shape or not start.mean() > 0:
            raise InputError(f"the witnesses of {group} are not the same, or have no loss to rise")
        ratios[group] = float(end.mean() / start.mean())
    return ratios
