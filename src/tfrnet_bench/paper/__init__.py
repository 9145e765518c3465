"""The numbers that the paper prints, under the names that variants have here.

`main.csv`, `ablation.csv` and `tofu.csv` are its tables 1, 2 and 3, as printed.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tfrnet_bench.constants import UNTOUCHED

_VARIANTS = {
    "GA": "ga",
    "RMU": "rmu",
    "SimNPO": "simnpo",
    "LLM-Eraser": "llm-eraser",
    "O3": "o3",
    "ASU": "asu",
    "TFR-Net": "tfr",
    "Full SFT": UNTOUCHED,
    "w/o recover": "tfr-no-recovery",
    "w/o Retain": "tfr-no-retain",
    "w/o Hist.-risk": "tfr-no-history",
}
# The columns that hold no numbers.
_NAMES = ("method", "venue", "forget_stream", "variant")

BASELINES = ("ga", "rmu", "simnpo", "llm-eraser", "o3", "asu")
"""The methods that the paper compares TFR-Net with."""

Numbers = Mapping[str, float]


@cache
def main_table() -> Mapping[str, Numbers]:
    """Return table 1 by variant: per stream `_f_avg`, `_f_at_20`, `_r_avg`, `_tradeoff`."""
    return {_VARIANTS[row["method"]]: _numbers(row) for row in _rows("main")}


@cache
def ablation_table() -> Mapping[tuple[str, str], Numbers]:
    """Return table 2 by stream and variant: `forget_` and `retain_TASK_` with `r5` or `r20`."""
    return {
        (row["forget_stream"].lower(), _VARIANTS[row["variant"]]): _numbers(row)
        for row in _rows("ablation")
    }


@cache
def tofu_table() -> Mapping[str, Numbers]:
    """Return table 3 by variant: `mia_gap`, `privleak` and `model_utility`."""
    return {_VARIANTS[row["method"]]: _numbers(row) for row in _rows("tofu")}


def _rows(name: str) -> list[dict[str, str]]:
    with (Path(__file__).parent / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def _numbers(row: Mapping[str, str]) -> Numbers:
    return {name: float(value) for name, value in row.items() if name not in _NAMES}
