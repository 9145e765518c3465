"""The names of variants, streams and tasks in tables and figures, and their order."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from tfrnet.core.errors import InputError
from tfrnet.data.tasks import find_task
from tfrnet.method import find_method
from tfrnet_bench.constants import ORACLE, TASK_ORACLE, UNTOUCHED

# No model at all: what answers without knowledge would score.
GUESSING = "guessing"
ABLATIONS = ("tfr", "tfr-no-recovery", "tfr-no-retain", "tfr-no-history", "tfr-no-guard")
# A mask that never moves: what becomes of the relevant channels without any suppression.
CONTROL = "tfr-no-suppression"

_CONTROLS = {
    UNTOUCHED: "untouched",
    GUESSING: "guessing",
    ORACLE: "retain90 (oracle)",
    TASK_ORACLE: "oracle",
}
# The forms of a method that are not its own name: what comes after the name, and what that means.
_FORMS = {
    "-paper": "(paper's rule)",
    "-no-recovery": "w/o recovery",
    "-no-retain": "w/o retain",
    "-no-history": "w/o history",
    "-no-guard": "w/o guard",
    "-no-suppression": "w/o suppression",
}
# The order of rows: the controls and the baselines, then any others, then TFR-Net's forms.
_FIRST = (*_CONTROLS, "ga", "graddiff", "npo", "rmu", "simnpo", "llm-eraser", "o3", "asu")
_LAST = ("tfr-paper", *ABLATIONS, CONTROL)


@cache
def variant_label(variant: str) -> str:
    """Return a variant's label; if its method is not installed, its name."""
    if variant in _CONTROLS:
        return _CONTROLS[variant]
    ending = next((ending for ending in _FORMS if variant.endswith(ending)), "")
    try:
        label = find_method(variant.removesuffix(ending)).label
    except InputError:
        return variant
    return f"{label} {_FORMS[ending]}" if ending else label


@cache
def task_label(task: str) -> str:
    """Return the label of a task or its stream; if the task is not installed, its name."""
    if task == "tofu":
        return "TOFU"
    try:
        return find_task(task).label
    except InputError:
        return task


def in_order(variants: Iterable[str]) -> list[str]:
    """Return the variants in the order of rows: controls, baselines, others, TFR-Net's forms."""
    ranks = {name: (0, place) for place, name in enumerate(_FIRST)}
    ranks |= {name: (2, place) for place, name in enumerate(_LAST)}
    return sorted(set(variants), key=lambda name: (*ranks.get(name, (1, 0)), name))
