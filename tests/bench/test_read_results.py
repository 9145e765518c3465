"""Reading the folder of a bench run."""

from __future__ import annotations

import json

import pytest

from tests.bench.made_up import header, run_of, stream_result
from tfrnet.core.errors import InputError
from tfrnet_bench.report.bench_page import bench_page
from tfrnet_bench.results import CellFailure, CellResult, read_run
from tfrnet_bench.run_folder import CellKey
from tfrnet_bench.tables import all_tables


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
    assert [(r.variant, r.seed) for r in found.results] == [
        ("ga", 0),
        ("tfr", 2),
        ("tfr", 10),
    ]


def test_a_failed_cell_is_named_with_its_error(run):
    key = CellKey("stream", "boolq", "rmu", 0)
    assert read_run(run).failures == [CellFailure(key, "InputError: no such layer")]


def test_a_result_is_worth_more_than_an_earlier_error(run):
    write(run, "stream/boolq/rmu/0", "result.json", header("stream", "rmu", "boolq", 0))
    found = read_run(run)
    assert not found.failures
    assert len(found.results) == 4


def test_a_cell_that_has_not_ended_is_neither(run):
    (run / "cells" / "stream" / "boolq" / "o3" / "0").mkdir(parents=True)
    found = read_run(run)
    assert {r.variant for r in found.results} == {"ga", "tfr"}
    assert found.unfinished == [CellKey("stream", "boolq", "o3", 0)]


def test_results_on_a_tuning_seed_are_refused(run):
    write(run, "stream/boolq/ga/1000", "result.json", header("stream", "ga", "boolq", 1000))
    with pytest.raises(InputError, match="stream/boolq/ga/1000 is on a tuning seed"):
        read_run(run)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "Expecting property name"),
        ("[]", "not a result"),
        ('{"schema": "other/1"}', "not a result"),
        (json.dumps(header("stream", "tfr", "boolq", 0)), "result of another cell"),
    ],
)
def test_what_is_not_a_result_counts_as_failed_and_the_rest_is_read(run, text, problem):
    (run / "cells/stream/boolq/ga/0/result.json").write_text(text)
    found = read_run(run)
    assert [r.variant for r in found.results] == ["tfr", "tfr"]
    assert found.failures[0].key == CellKey("stream", "boolq", "ga", 0)
    assert found.failures[0].error.startswith("its files cannot be read: ")
    assert problem in found.failures[0].error


def test_parts_that_a_cell_does_not_have_are_empty(run):
    result = read_run(run).results[0]
    assert result.structure == result.tofu == {}
    assert list(result.checkpoints) == []
    assert result.request_seconds == result.request_bytes("peak") == []
    assert result.samples == []


@pytest.mark.parametrize(
    ("variant", "is_ablation"), [("tfr", False), ("tfr-paper", False), ("tfr-no-guard", True)]
)
def test_a_variant_is_an_ablation_unless_it_is_a_method_with_a_preset(variant, is_ablation):
    assert CellResult.from_dict(header("stream", variant, "boolq", 0)).is_ablation == is_ablation


def mean_trade_off(results, method):
    tables = {table.name: table for table in all_tables(run_of(results))}
    return next(row[4] for row in tables["main-arithmetic"].rows if row[0] == method)


def test_a_mean_says_that_settings_differ_between_its_seeds():
    results = [stream_result(name, "arithmetic", s) for name in ("ga", "none") for s in range(3)]
    assert "differ" not in mean_trade_off(results, "GA")
    assert "settings differ" not in bench_page(run_of(results)).html
    # A setting that came later is not another one.
    results[0] = results[0] | {"settings": results[0]["settings"] | {"newer": 1}}
    assert "differ" not in mean_trade_off(results, "GA")
    results[0] = results[0] | {"preset": "default", "settings": {"steps": 9}}
    assert mean_trade_off(results, "GA").endswith(" [settings differ]")
    assert "differ" not in mean_trade_off(results, "untouched")
    page = bench_page(run_of(results)).html
    assert "settings differ between seeds</dt><dd>stream/arithmetic/ga</dd>" in page


def test_seeds_of_two_models_are_not_one_mean():
    results = [stream_result("ga", "arithmetic", seed) for seed in range(3)]
    results[1] = results[1] | {"model": results[1]["model"] | {"digest": "9" * 64}}
    assert mean_trade_off(results, "GA").endswith(" [settings differ]")
    # Every seed may have an oracle of its own.
    oracles = [result | {"variant": "oracle", "method": "none"} for result in results]
    assert not run_of(oracles).mixed


def test_a_folder_that_is_no_seed_is_refused(run):
    (run / "cells/stream/boolq/ga/zero").mkdir()
    with pytest.raises(InputError, match="'zero' is not a seed"):
        read_run(run)


def test_a_folder_without_cells_is_no_run(tmp_path):
    with pytest.raises(InputError, match="not the folder of a bench run"):
        read_run(tmp_path)
