"""The page about limits holds what its cells say."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest

from benchmarks import limits_table as tables
from benchmarks.default_table import STREAMS, of, read_cells
from tfrnet_bench.constants import FIRST_TUNING_SEED

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "benchmarks" / "notebook" / "limits.md").read_text()
CELLS = read_cells("limits")


@pytest.mark.parametrize("name", ["tofu_table", "facts_table", "arms_table"])
def test_a_table_is_that_of_the_cells(name: str) -> None:
    assert getattr(tables, name)(CELLS) in PAGE


@pytest.mark.parametrize("names", [("h0",), ("m100", "m1000", "r64", "r64m100")])
def test_a_table_of_streams_is_that_of_the_cells(names: tuple[str, ...]) -> None:
    assert tables.streams_table(CELLS, names) in PAGE


def test_only_attacks_looked_at_reporting_seeds() -> None:
    for cell in CELLS:
        assert ("attacks" in cell) >= (cell["seed"] < FIRST_TUNING_SEED)


def test_what_came_back_on_reporting_seeds() -> None:
    rows = read_cells("default-report")
    risen = [fmean(map(tables.came_back, of(rows, "default", stream))) for stream in STREAMS]
    assert "default's own figures are " + " / ".join(f"{each:+.0f}" for each in risen) in PAGE
