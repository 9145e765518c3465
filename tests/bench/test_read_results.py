"""Reading the folder of a bench run."""

from __future__ import annotations

import json

import pytest

from tests.bench.made_up import header
from tfrnet.core.errors import InputError
from tfrnet_bench.results import FailedCell, read_run


def write(run, name, file, value):
    cell = run / "cells" / name
    cell.mkdir(parents=True, exist_ok=True)
    (cell / file).write_text(json.dumps(value))


@pytest.fixture
def run(tmp_path):
    for variant, seed in (("tfr", 10), ("tfr", 2), ("ga", 0)):
        result = header("stream", variant, "boolq", seed)
        write(tmp_path, f"stream/boolq/{variant}/{seed}", "result.json", result)
    write(tmp_path, "stream/boolq/rmu/0", "error.json", {"error": "InputError: no such layer"})
    return tmp_path


def test_results_come_in_the_order_of_kind_stream_variant_and_seed(run):
    found = read_run(run)
    assert [(r["variant"], r["seed"]) for r in found.results] == [
        ("ga", 0),
        ("tfr", 2),
        ("tfr", 10),
    ]


def test_a_failed_cell_is_named_with_its_error(run):
    assert read_run(run).failed == [
        FailedCell("stream", "boolq", "rmu", 0, "InputError: no such layer")
    ]


def test_a_result_is_worth_more_than_an_earlier_error(run):
    write(run, "stream/boolq/rmu/0", "result.json", header("stream", "rmu", "boolq", 0))
    found = read_run(run)
    assert not found.failed
    assert len(found.results) == 4


def test_a_cell_that_has_not_ended_is_neither(run):
    (run / "cells" / "stream" / "boolq" / "o3" / "0").mkdir(parents=True)
    assert {r["variant"] for r in read_run(run).results} == {"ga", "tfr"}


def test_results_on_a_tuning_seed_are_refused(run):
    write(run, "stream/boolq/ga/1000", "result.json", header("stream", "ga", "boolq", 1000))
    with pytest.raises(InputError, match="stream/boolq/ga/1000 is on a tuning seed"):
        read_run(run)


@pytest.mark.parametrize(
    ("text", "problem"),
    [("{", "damaged"), ("[]", "JSON object"), ('{"schema": "other/1"}', "not a result")],
)
def test_what_is_not_a_result_is_refused(run, text, problem):
    (run / "cells/stream/boolq/ga/0/result.json").write_text(text)
    with pytest.raises(InputError, match=problem):
        read_run(run)


def test_a_folder_without_cells_is_no_run(tmp_path):
    with pytest.raises(InputError, match="not the folder of a bench run"):
        read_run(tmp_path)
