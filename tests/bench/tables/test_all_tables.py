"""All tables of a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.bench.made_up import run_of
from tests.bench.tables.few import STREAMS, failure, find, stream
from tfrnet.core.errors import InputError
from tfrnet_bench.tables import all_tables, write_tables


def test_a_whole_run_has_every_table(tables):
    by_stream = ("main", "ablation", "structure", "robust", "reemergence")
    assert {table.name for table in tables} == {
        "yardsticks",
        "main",
        "floors",
        "tofu",
        "cost",
        *(f"{name}-{stream}" for name in by_stream for stream in STREAMS),
    }
    assert find(tables, "main-boolq")["RMU"]["F Avg"] == "failed"


def test_the_order_of_results_does_not_matter(run, tables):
    assert (
        all_tables(replace(run, results=run.results[::-1], failures=run.failures[::-1])) == tables
    )


def test_only_what_was_tried_is_shown():
    assert all_tables(run_of([])) == []
    names = {table.name for table in all_tables(run_of([stream("ga", "boolq", 0)]))}
    assert names == {
        "yardsticks",
        "main",
        "main-boolq",
        "floors",
        "reemergence-boolq",
        "cost",
    }


def test_a_run_that_failed_as_a_whole_says_so():
    tables = all_tables(run_of([], [failure("stream", "boolq", "tfr", 0)]))
    assert find(tables, "main")["TFR-Net"]["BoolQ"] == "failed"
    assert find(tables, "cost")["TFR-Net"]["Peak GB"] == "failed"


def test_tables_are_written_in_three_forms(run, tables, tmp_path):
    paths = write_tables(run, tmp_path / "tables")
    assert len(paths) == 3 * len(tables)
    assert {path.name for path in paths} >= {"main.md", "main.csv", "main.tex"}
    assert all(path.stat().st_size for path in paths)
    assert sorted((tmp_path / "tables").iterdir()) == sorted(paths)


def test_tuning_seeds_are_refused():
    with pytest.raises(InputError, match="tuning seed"):
        run_of([stream("ga", "boolq", 1000)])


def test_a_cell_cannot_have_two_results():
    with pytest.raises(InputError, match="two results of one cell"):
        run_of([stream("ga", "boolq", 0)] * 2)


def test_streams_of_different_lengths_share_no_table():
    short = stream("ga", "boolq", 1)
    short["checkpoints"] = short["checkpoints"][:3]
    with pytest.raises(InputError, match="after different requests"):
        all_tables(run_of([stream("ga", "boolq", 0), short]))
