"""The paper's third table, and what is computed beside the oracle."""

from __future__ import annotations

from statistics import median

import pytest

from tests.bench.made_up import run_of, tofu_result
from tests.bench.tables.few import failure, find
from tfrnet.evaluation.metrics.membership import auc, privleak
from tfrnet.evaluation.metrics.tofu_scores import forget_quality
from tfrnet_bench.results import CellResult
from tfrnet_bench.tables.oracle_distance import compare_results, oracle_of
from tfrnet_bench.tables.tofu_table import tofu_tables


def cells(*results):
    return [CellResult.from_dict(result) for result in results]


def with_scores(variant, seed, members, others):
    result = tofu_result(variant, seed, rows=4)
    result["privacy_scores"]["min_k"] = [members, others]
    return result


def test_privleak_of_stored_scores_by_hand():
    # AUCs of 15 and 8 of 16 pairs: 100 (0.5 - 0.9375) / (1 - 0.5).
    unlearned = with_scores("tfr", 0, [1, 2, 3, 5], [4, 6, 7, 8])
    oracle = with_scores("retain90", 0, [1, 2, 7, 8], [3, 4, 5, 6])
    assert compare_results(*cells(unlearned, oracle)).leak.signed == pytest.approx(-87.5)
    table = find(tofu_tables(run_of([unlearned, oracle])), "tofu")
    assert table["TFR-Net"]["PrivLeak"] == "87.50"
    assert table["TFR-Net"]["PrivLeak (signed)"] == "-87.50"
    assert table["TFR-Net"]["PrivLeak (paper)"] == "27.29"


def test_the_comparison_is_that_of_the_metrics():
    result, oracle = cells(tofu_result("ga", 1), tofu_result("retain90", 1))
    found = compare_results(result, oracle)
    aucs = [auc(*cell.privacy_scores["min_k"]) for cell in (result, oracle)]
    assert found.leak == privleak(*aucs)
    assert found.quality == forget_quality(result.truth_ratios, oracle.truth_ratios)


def test_each_seed_has_its_oracle_and_a_single_one_serves_all():
    oracles = dict(enumerate(cells(tofu_result("retain90", 0), tofu_result("retain90", 1))))
    result, third = cells(tofu_result("ga", 1), tofu_result("ga", 2))
    assert oracle_of(result, oracles) is oracles[1]
    assert oracle_of(result, {0: oracles[0]}) is oracles[0]
    assert oracle_of(third, oracles) is None


def test_rows_of_controls_methods_and_failures():
    results = [tofu_result(v, seed) for v in ("none", "retain90", "ga") for seed in (0, 1, 2)]
    table = find(tofu_tables(run_of(results, [failure("tofu", "tofu", "rmu", 0)])), "tofu")
    assert list(table)[:3] == ["untouched", "retain90 (oracle)", "GA"]
    assert table["untouched"]["MIA Gap"] == "0.4000 ± 0.0000"
    assert table["untouched"]["Model Utility (paper)"] == "0.3414"
    assert table["GA"]["Model Utility"] == "0.2500 ± 0.0000"
    assert table["GA"]["Forget ROUGE-L"] == "0.8000 ± 0.0000"
    assert table["GA"]["Forget probability"] == "0.9000 ± 0.0000"
    assert table["retain90 (oracle)"]["PrivLeak"] == "reference"
    assert table["RMU"]["PrivLeak"] == table["RMU"]["MIA Gap"] == "failed"
    assert table["O3"]["Forget Quality (p)"] == "not run"
    p_values = [
        compare_results(*cells(tofu_result("ga", s), tofu_result("retain90", s))).quality.p_value
        for s in (0, 1, 2)
    ]
    assert table["GA"]["Forget Quality (p)"] == (
        f"{median(p_values):.2g} ({min(p_values):.2g} to {max(p_values):.2g})"
    )


def test_without_an_oracle_there_is_no_comparison():
    row = find(tofu_tables(run_of([tofu_result("ga", 0)])), "tofu")["GA"]
    assert row["PrivLeak"] == row["Forget Quality (p)"] == "no oracle"
    assert row["MIA Gap"] == "0.2000"
