"""The paper's first table."""

from __future__ import annotations

from statistics import fmean

import pytest

from tests.bench.made_up import run_of, stream_result
from tests.bench.tables.few import STREAMS, failure, find, stream
from tfrnet.evaluation.yardsticks import YARDSTICKS
from tfrnet_bench.honest import honest, measured
from tfrnet_bench.results import CellResult
from tfrnet_bench.tables.labels import task_label
from tfrnet_bench.tables.main_table import main_tables


def everywhere(variant, *trade_offs):
    """Results whose Trade-off is the same on every stream, one for each seed."""
    return [
        stream(variant, name, seed, 100 - value, value)
        for name in STREAMS
        for seed, value in enumerate(trade_offs)
    ]


def test_scores_mean_trade_and_gain_by_hand():
    results = [
        *everywhere("ga", 40, 42, 44),
        *everywhere("rmu", 30, 30, 30),
        *everywhere("tfr", 50, 53, 56),
    ]
    tables = main_tables(run_of(results))
    overview = find(tables, "main")
    assert overview["GA"]["Arithmetic"] == overview["GA"]["Mean Trade"] == "42.00 ± 4.97"
    assert overview["GA"]["Gain"] == "0.00 ± 0.00"
    # Seed by seed the gains are 10, 11 and 12: half of what the two intervals suggest.
    assert overview["TFR-Net"]["Gain"] == "11.00 ± 2.48"
    assert overview["RMU"]["Gain"] == "-12.00 ± 4.97"
    assert overview["TFR-Net"]["n"] == "3"
    arithmetic = find(tables, "main-arithmetic")
    assert arithmetic["GA"]["F Avg"] == arithmetic["GA"]["F@20"] == "58.00 ± 4.97"
    assert arithmetic["GA"]["R Avg"] == arithmetic["GA"]["Trade-off"] == "42.00 ± 4.97"


def test_the_honest_score_stands_beside_the_papers():
    seeds = (0, 1)
    whole = [stream_result("ga", name, seed) for name in STREAMS for seed in seeds]
    table = main_tables(run_of(whole))[0]
    row = find([table], "main")["GA"]
    means = []
    for name in STREAMS:
        scores = [
            honest(CellResult.from_dict(r))["honest_trade_off"]
            for r in whole
            if r["stream"] == name
        ]
        means.append(fmean(scores))
        assert row[f"Honest: {task_label(name)}"].startswith(f"{means[-1]:.1f} ± ")
    assert row["Honest: mean"].startswith(f"{fmean(means):.1f} ± ")
    assert find([table], "main")["guessing"]["Honest: mean"] == ""
    for name in ("trade_off", "honest_trade_off"):
        assert YARDSTICKS[name].meaning in table.note


def test_a_retrained_model_is_scored_as_if_the_untouched_one_had_become_it():
    untouched, ignorant = stream("none", "boolq", 0), stream("oracle", "boolq", 0)
    for result, right in ((untouched, 95.0), (ignorant, 40.0)):
        result["forgetting"] = result["forgetting"] | {
            "accuracy": {"before": [right] * 20},
            "seen": [right] * 20,
            "unseen": [right] * 19,
        }
        for point in result["checkpoints"]:
            point["retain"] = {"boolq": 80.0}
    read = {
        name: measured(run_of([untouched, ignorant]), "boolq", "oracle", name).numbers
        for name in ("honest_trade_off", "forgotten", "kept", "unseen")
    }
    # From 95 to 40, where guessing has 25, and nothing lost.
    forgotten = 100 * (95 - 40) / (95 - 25)
    assert read["forgotten"] == [pytest.approx(forgotten)]
    assert read["kept"] == [pytest.approx(100)]
    assert read["honest_trade_off"] == [pytest.approx(2 * 100 * forgotten / (100 + forgotten))]
    assert read["unseen"] == []
    assert measured(run_of([ignorant]), "boolq", "oracle", "honest_trade_off").numbers == []


def test_the_papers_numbers_stand_beside_ours():
    tables = main_tables(run_of(everywhere("ga", 40)))
    overview = find(tables, "main")
    assert overview["GA"]["Mean Trade (paper)"] == "48.28"
    assert overview["TFR-Net"]["Gain (paper)"] == "8.35"
    assert overview["TFR-Net (paper's rule)"]["Gain (paper)"] == "8.35"
    assert overview["untouched"]["Mean Trade (paper)"] == ""
    assert find(tables, "main-boolq")["O3"]["F@20 (paper)"] == "69.00"
    assert find(tables, "main-boolq")["O3"]["F@20"] == "not run"


def test_a_mean_trade_needs_every_stream_and_says_how_many_seeds_it_has():
    results = everywhere("ga", 40, 42) + everywhere("tfr", 50, 50)
    results = [r for r in results if (r["variant"], r["stream"], r["seed"]) != ("tfr", "boolq", 1)]
    failed = [failure("stream", "boolq", "tfr", 1), failure("stream", "arithmetic", "asu", 0)]
    overview = find(main_tables(run_of(results, failed)), "main")
    assert overview["TFR-Net"]["BoolQ"] == "50.00 [n = 1 of 2, 1 failed]"
    assert overview["TFR-Net"]["Mean Trade"] == "50.00 [n = 1 of 2, 1 failed]"
    assert overview["TFR-Net"]["Gain"] == "10.00 [n = 1 of 2, 1 failed]"
    assert overview["TFR-Net"]["n"] == "2 / 2 / 1"
    assert overview["ASU"]["Arithmetic"] == "failed"
    assert overview["ASU"]["Mean Trade"] == overview["ASU"]["Gain"] == "not run"


def test_the_note_names_the_best_baseline_and_those_without_a_mean():
    table = main_tables(run_of(everywhere("ga", 40) + everywhere("rmu", 60)))[0]
    assert "Gain is over RMU" in table.note
    assert "Without a Mean Trade: SimNPO, LLM-Eraser, O3, ASU." in table.note
    assert "Measured on smollm2-tasks; the paper's numbers are of LLaMA-7B." in table.note


def test_without_baselines_there_are_no_gains():
    table = main_tables(run_of(everywhere("tfr", 40)))[0]
    assert "there are no gains" in table.note
    assert find([table], "main")["TFR-Net"]["Gain"] == "not run"


def test_unknown_variants_are_rows_and_ablations_are_not():
    results = everywhere("later-method", 40) + everywhere("tfr-no-guard", 40)
    rows = list(find(main_tables(run_of(results)), "main"))
    assert rows.index("ASU") < rows.index("later-method") < rows.index("TFR-Net (paper's rule)")
    assert rows[0] == "untouched"
    assert not [row for row in rows if "guard" in row]


def test_guessing_is_a_row_with_scores_of_its_own():
    results = everywhere("ga", 40, 42)
    for result in results:
        tasks = {"arithmetic": 0.0, "openbookqa": 25.0, "boolq": 50.0}
        result["floors"] = {task: {"random": value} for task, value in tasks.items()}
        result["floors"]["forget"] = {"random": tasks[result["stream"]], "longest choice": 90.0}
    tables = main_tables(run_of(results))
    rows = list(find(tables, "main"))
    assert rows.index("untouched") < rows.index("guessing") < rows.index("GA")
    arithmetic = find(tables, "main-arithmetic")["guessing"]
    assert arithmetic["F Avg"] == arithmetic["F@20"] == "0.00 ± 0.00"
    assert (arithmetic["R Avg"], arithmetic["Trade-off"]) == ("25.00 ± 0.00", "40.00 ± 0.00")
    overview = find(tables, "main")["guessing"]
    # 2 * 75 * 25 / 100 and 2 * 50 * 25 / 75
    assert (overview["OpenBookQA"], overview["BoolQ"]) == ("37.50 ± 0.00", "33.33 ± 0.00")
    assert overview["Mean Trade"] == "36.94 ± 0.00"
    assert (overview["Gain"], overview["n"]) == ("-4.06 ± 12.71", "2")


def test_where_no_floor_is_known_guessing_is_undefined():
    results = everywhere("ga", 40)
    for result in results:
        del result["floors"]["arithmetic"]
    overview = find(main_tables(run_of(results)), "main")
    assert overview["guessing"]["BoolQ"] == overview["guessing"]["Mean Trade"] == "undefined"
