"""The page about cost holds what its cells say."""

from __future__ import annotations

from pathlib import Path

from benchmarks import cost_table as tables
from benchmarks.default_table import read_cells
from tfrnet.methods.tfr.config import TFRConfig
from tfrnet_bench.constants import FIRST_TUNING_SEED

PAGE = (Path(__file__).parents[2] / "benchmarks" / "notebook" / "cost.md").read_text()


def test_the_tables_are_those_of_the_cells() -> None:
    assert tables.streams_table(tables.cells()) in PAGE
    assert tables.facts_table(tables.cells()) in PAGE
    assert tables.stages_table(tables.read_rows("demo-requests")) in PAGE
    assert tables.large_table(tables.read_rows("default-7b")) in PAGE
    assert tables.rows_table([*read_cells("limits"), *tables.cells()]) in PAGE


def test_the_preset_is_the_variant_that_was_measured() -> None:
    found = {TFRConfig.from_dict(r["settings"]) for r in tables.cells() if r["candidate"] == "k3"}
    assert found == {TFRConfig.preset("quick")}


def test_no_reporting_seed_was_looked_at() -> None:
    assert min(row["seed"] for row in tables.cells()) >= FIRST_TUNING_SEED
