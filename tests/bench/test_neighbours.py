"""The page about the preset with neighbours holds what its cells say."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import neighbours_table as tables
from benchmarks.calibrated import method_of
from tfrnet import TFRConfig
from tfrnet_bench.constants import FIRST_TUNING_SEED

PAGE = (Path(__file__).parents[2] / "benchmarks" / "notebook" / "neighbours.md").read_text()
CELLS = tables.read_cells()
LAST = [cell for cell in CELLS if cell["round"] == 4]


@pytest.mark.parametrize("table", ["means_table", "streams_table", "facts_table"])
def test_a_table_is_that_of_the_cells(table: str) -> None:
    assert getattr(tables, table)(CELLS) in PAGE


def test_all_cells_are_of_tuning_seeds_and_none_failed() -> None:
    assert min(cell["seed"] for cell in CELLS) >= FIRST_TUNING_SEED
    assert not any("error" in cell for cell in CELLS)


def test_the_default_is_what_was_measured() -> None:
    (settings,) = {
        str(cell["settings"]): cell["settings"] for cell in LAST if tables.name_of(cell) == "F"
    }.values()
    # The cells had calibrated's limit on a whole stream; none came near it. Half of the siblings
    # were measured later.
    since = {"preset": "calibrated", "drift_limit": TFRConfig().drift_limit, "siblings": 24}
    # And the guard is no longer held: test_witness.py.
    since |= {"hold_guard": False, "guard_absolute": 0.02}
    # Where the retain data has numbers and labels, as here, this changes nothing.
    since |= {"own_symbols": True}
    # As does this where no number has more than four digits.
    since |= {"every_digit": True}
    # And what wrong answers that a request names change: test_wrong_answers.py.
    since |= {"use_wrong_answers": True}
    assert method_of(settings | since)[1] == TFRConfig()
    assert max(cell["guard_last"] / cell["guard_first"] for cell in LAST) < 3
