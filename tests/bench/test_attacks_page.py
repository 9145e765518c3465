"""The page about attacks holds what its cells say."""

from __future__ import annotations

from pathlib import Path

from benchmarks.attacks_table import attacks_table

PAGE = Path(__file__).parents[2] / "benchmarks" / "notebook" / "attacks.md"


def test_the_table_is_that_of_the_cells() -> None:
    assert attacks_table() in PAGE.read_text()
