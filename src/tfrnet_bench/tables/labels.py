"""What variants, streams and tasks are called in tables and figures, and their order."""

from __future__ import annotations

from collections.abc import Iterable

from tfrnet_bench.constants import ORACLE, UNTOUCHED

# No model at all: what answers without knowledge would score.
GUESSING = "guessing"
ABLATIONS = ("tfr", "tfr-no-recovery", "tfr-no-retain", "tfr-no-history", "tfr-no-guard")
# A mask that never moves: what becomes of the relevant channels without any suppression.
CONTROL = "tfr-no-suppression"

_FIRST = {
    UNTOUCHED: "untouched",
    GUESSING: "guessing",
    ORACLE: "retain90 (oracle)",
    "ga": "GA",
    "graddiff": "GradDiff",
    "npo": "NPO",
    "rmu": "RMU",
    "simnpo": "SimNPO",
    "llm-eraser": "LLM-Eraser",
    "o3": "O3",
    "asu": "ASU",
}
_LAST = {
    "tfr-paper": "TFR-Net (paper's rule)",
    "tfr": "TFR-Net",
    "tfr-no-recovery": "TFR-Net w/o recovery",
    "tfr-no-retain": "TFR-Net w/o retain",
    "tfr-no-history": "TFR-Net w/o history",
    "tfr-no-guard": "TFR-Net w/o guard",
    CONTROL: "TFR-Net w/o suppression",
}
_LABELS = _FIRST | _LAST
_TASKS = {"arithmetic": "Arithmetic", "openbookqa": "OpenBookQA", "boolq": "BoolQ", "tofu": "TOFU"}


def variant_label(variant: str) -> str:
    """Return what a variant is called; one that is not known here keeps its name."""
    return _LABELS.get(variant, variant)


def task_label(task: str) -> str:
    """Return what a task or the stream of its items is called."""
    return _TASKS.get(task, task)


def in_order(variants: Iterable[str]) -> list[str]:
    """Return the variants in the order of rows: controls, baselines, others, TFR-Net's forms."""
    ranks = {name: (0, place) for place, name in enumerate(_FIRST)}
    ranks |= {name: (2, place) for place, name in enumerate(_LAST)}
    return sorted(set(variants), key=lambda name: (*ranks.get(name, (1, 0)), name))
