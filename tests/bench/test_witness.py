"""The page about the guard that no step holds has what its cells say."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from benchmarks import long_numbers
from benchmarks import witness_table as tables
from benchmarks.default_table import STREAMS, of, oracle_table, read_cells, tofu_table
from benchmarks.limits_table import came_back
from benchmarks.long_numbers import numbers_table
from benchmarks.own_text_step import own_symbols_table, read_rows
from benchmarks.wrong_answers_table import report_variants
from tfrnet.methods.tfr.config import TFRConfig
from tfrnet_bench.constants import FIRST_TUNING_SEED

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "benchmarks" / "notebook" / "witness.md").read_text()
DOC = (ROOT / "docs" / "research.md").read_text()
CELLS = read_cells("witness")
BEFORE = read_cells()


def test_the_tables_are_those_of_the_cells() -> None:
    assert tables.streams_table(CELLS, BEFORE) in PAGE
    assert tables.topics_table(CELLS, BEFORE) in PAGE
    assert tofu_table(CELLS, tables.DEFAULT) in PAGE
    assert oracle_table(CELLS, read_cells("default-oracle"), (tables.DEFAULT,)) in PAGE


def test_the_table_without_retain_data_is_that_of_the_runs() -> None:
    assert own_symbols_table(read_rows()) in PAGE
    assert all(row["seed"] >= FIRST_TUNING_SEED for row in read_rows())


def test_the_table_of_long_numbers_is_that_of_the_runs() -> None:
    assert numbers_table(long_numbers.read_rows()) in PAGE


def test_streams_are_of_reporting_seeds_with_the_default_of_today() -> None:
    for cell in CELLS:
        assert (cell["seed"] >= FIRST_TUNING_SEED) == cell["task"].startswith("demo:")
        if cell["candidate"] == tables.DEFAULT:
            assert TFRConfig.from_dict(cell["settings"]) == TFRConfig()


def test_every_seed_of_every_stream_ran() -> None:
    ran = {(c["task"], c["seed"]) for c in CELLS if c["candidate"] == tables.DEFAULT}
    assert ran >= {(stream, seed) for stream in STREAMS for seed in (3, 4, 5, 6, 7)}


def test_what_the_document_says_of_neighbours_and_of_what_came_back() -> None:
    cells = {stream: of(CELLS, tables.DEFAULT, stream) for stream in STREAMS}
    cells["openbookqa"] = report_variants()["median"]
    risen = [fmean(map(came_back, rows)) for rows in cells.values()]
    assert "by {:.1f}, {:.1f} and {:.1f} points".format(*risen) in DOC
    facts = [c for c in CELLS if c["task"].startswith("demo:")]
    before = fmean(cell["before"]["same_topic_nats"] for cell in facts)
    after = fmean(cell["points"][-1]["same_topic_nats"] for cell in facts)
    assert f"from {before:.1f} to {after:.1f} nats" in DOC
