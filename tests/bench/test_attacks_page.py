"""The page about attacks holds what its cells say."""

from __future__ import annotations

from pathlib import Path

from benchmarks.attacks_table import attacks_table, seeds_table

PAGE = (Path(__file__).parents[2] / "benchmarks" / "notebook" / "attacks.md").read_text()


def test_the_tables_are_those_of_the_cells() -> None:
    assert attacks_table() in PAGE
    assert seeds_table() in PAGE
