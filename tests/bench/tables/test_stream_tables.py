"""Floors, ablation, structure, re-emergence and cost."""

from __future__ import annotations

import pytest

from tests.bench.made_up import run_of
from tests.bench.tables.few import failure, find, stream
from tfrnet.evaluation.metrics.intervals import wilson_interval
from tfrnet_bench.tables.ablation_table import ablation_tables
from tfrnet_bench.tables.cost_table import cost_tables
from tfrnet_bench.tables.floor_table import floor_tables
from tfrnet_bench.tables.reemergence_table import reemergence_tables
from tfrnet_bench.tables.structure_table import structure_tables


def test_floors_are_of_the_items_and_once_a_seed():
    results = [stream(v, "boolq", seed) for v in ("none", "ga") for seed in (0, 1, 2)]
    for result in results:
        share = {0: 60.0, 1: 62.0, 2: 64.0}[result["seed"]]
        result["floors"] = {"boolq": {"random": 50.0}, "forget": {"always yes": share}}
    rows = floor_tables(run_of(results))[0].rows
    assert rows == [
        ["BoolQ", "to forget", "always yes", "62.00 ± 4.97", "3"],
        ["BoolQ", "BoolQ", "random", "50.00 ± 0.00", "3"],
    ]


def test_the_ablation_has_first_and_last_request_beside_the_paper():
    results = [stream(v, "boolq", 0) for v in ("tfr", "tfr-no-recovery")]
    for result in results:
        result["floors"] = {part: {"random": 50.0} for part in ("forget", "boolq", "arithmetic")}
        first, last = result["checkpoints"][1], result["checkpoints"][-1]
        first["forget"], last["forget"] = 71.0, 8.0
        first["retain"]["openbookqa"], last["retain"]["openbookqa"] = 41.0, 39.0
    failed = [failure("stream", "boolq", "tfr-no-guard", 0)]
    table = find(ablation_tables(run_of(results, failed)), "ablation-boolq")
    assert table["Forget @5"]["TFR-Net"] == "71.0"
    assert table["Forget @5"]["TFR-Net (paper)"] == "74.0"
    assert table["Forget @20"]["w/o recovery"] == "8.0"
    assert table["Forget @20"]["w/o recovery (paper)"] == "64.0"
    assert table["Keep OpenBookQA @20"]["TFR-Net"] == "39.0"
    assert table["Keep OpenBookQA @20"]["TFR-Net (paper)"] == "37.0"
    assert table["Forget @5"]["w/o history"] == "not run"
    assert table["Forget @5"]["w/o history (paper)"] == "80.0"
    assert table["Forget @5"]["w/o guard"] == "failed"
    assert table["Trade-off"]["TFR-Net"] == "50.00"
    assert table["Trade-off"]["TFR-Net (paper)"] == "46.26"
    assert (table["n"]["w/o recovery"], table["n"]["guessing"]) == ("1", "0")
    assert table["Forget @5"]["guessing"] == table["Keep BoolQ @20"]["guessing"] == "50.0"
    assert table["Keep OpenBookQA @20"]["guessing"] == "undefined"
    # A task whose floor is not known leaves R, and so the Trade-off, undefined.
    assert table["Trade-off"]["guessing"] == "undefined"
    assert table["Trade-off"]["untouched"] == "not run"


def test_there_is_no_ablation_without_an_ablated_variant():
    assert not ablation_tables(run_of([stream("tfr", "boolq", 0)]))


def test_the_structure_at_each_checkpoint():
    results = [stream("tfr", "boolq", seed) for seed in (0, 1, 2)]
    for seed, result in enumerate(results):
        found = result["structure"]
        found["composition"][9] = {"core": 0.2, "new": 0.5, "recurring": 0.3}
        found["dormant"][10] = 10 + 2 * seed
        found["recovered"] = [1] * 20
    table = structure_tables(run_of(results))[0]
    assert [row[1] for row in table.rows[:5]] == ["1", "5", "10", "15", "20"]
    tenth = dict(zip(table.columns, table.rows[2], strict=True))
    assert tenth["Core %"] == "20.0 ± 0.0"
    assert tenth["New %"] == "50.0 ± 0.0"
    assert tenth["Recurring %"] == "30.0 ± 0.0"
    assert tenth["Dormant"] == "12.0 ± 5.0"
    assert tenth["Recovered so far"] == "10.0 ± 0.0"
    assert tenth["n"] == "3"
    control = table.rows[-1]
    assert control[:3] == ["TFR-Net w/o suppression", "20", "not run"]
    assert "128 of 2048 channels" in table.note


def test_flip_backs_are_pooled_over_seeds():
    results = [stream("ga", "boolq", seed) for seed in (0, 1, 2)]
    for result, (flipped, wrong) in zip(results, [(3, 40), (2, 50), (0, 10)], strict=True):
        result["forgetting"]["flip_back"] |= {"flipped": flipped, "wrong": wrong}
        result["forgetting"]["backward_transfer"] = float(flipped)
        result["forgetting"]["reemergence_peak"] = [10.0, 0, 0, 5.0, 0, *[99.0] * 15]
        result["forgetting"]["reemergence_end"] = [5.0, 0, 0, 5.0, 0, *[99.0] * 15]
    row = find(reemergence_tables(run_of(results)), "reemergence-boolq")["GA"]
    low, high = wilson_interval(5, 100)
    assert row["Flip-back %"] == f"5.0 ({100 * low:.1f} to {100 * high:.1f}), 5 of 100"
    assert row["Backward transfer"].startswith("1.67 ± ")
    assert row["Requests 1-5: peak rise"] == "3.00 ± 0.00"
    assert row["Requests 1-5: rise at 20"] == "2.00 ± 0.00"


def test_reemergence_says_what_failed_and_what_is_not_defined():
    result = stream("ga", "boolq", 0)
    result["forgetting"]["flip_back"] |= {"flipped": 0, "wrong": 0}
    result["forgetting"]["backward_transfer"] = None
    cells = run_of([result], [failure("stream", "boolq", "rmu", 0)])
    rows = find(reemergence_tables(cells), "reemergence-boolq")
    assert rows["GA"]["Flip-back %"] == rows["GA"]["Backward transfer"] == "undefined"
    assert rows["RMU"]["Flip-back %"] == rows["RMU"]["Backward transfer"] == "failed"
    assert rows["RMU"]["n"] == "0"


def test_costs_are_by_request():
    results = [stream("ga", name, seed) for name in ("arithmetic", "boolq") for seed in (0, 1, 2)]
    for result in results:
        for number, request in enumerate(result["requests"]):
            request["seconds"]["total"] = 1.0 + 2 * (number % 2) + result["seed"]
            request["memory"]["peak"] = 1e9 * (3 if result["stream"] == "boolq" else 2)
    row = find(cost_tables(run_of(results)), "cost")["GA"]
    assert row["Seconds BoolQ"] == "3.00 ± 2.48"
    assert row["Peak GB"] == "3.00 ± 0.00"
    assert row["Evaluation, s"] == "3.0 ± 0.0"
    assert row["Accepted BoolQ"] == "19.0 ± 0.0"
    assert row["n"] == "3"


def test_what_a_variant_was_not_tried_on_is_not_missing_from_its_cost():
    results = [stream("ga", "boolq", 0), stream("tfr", "arithmetic", 0), stream("tfr", "boolq", 0)]
    row = find(cost_tables(run_of(results)), "cost")["GA"]
    assert row["Seconds Arithmetic"] == "not run"
    assert row["Evaluation, s"] == "3.0"


@pytest.mark.parametrize("variant", ["none", "oracle"])
def test_what_does_nothing_costs_nothing_to_list(variant):
    assert not cost_tables(run_of([stream(variant, "boolq", 0)]))


@pytest.mark.parametrize(
    "make", [floor_tables, ablation_tables, structure_tables, reemergence_tables, cost_tables]
)
def test_nothing_measured_is_no_table(make):
    assert not make(run_of([]))
