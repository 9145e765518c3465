"""The committed results, and what the docs and presets say of them."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean

import pytest

from benchmarks import method_tables
from tfrnet.method import find_method, method_names
from tfrnet.training.training_settings import TrainingSettings
from tfrnet_bench.search.choice import by_point
from tfrnet_bench.search.plan import SearchPlan
from tfrnet_bench.search.rows import read_rows

ROOT = Path(__file__).parents[2]
CHOSEN = ROOT / "benchmarks" / "results" / "search" / "chosen.json"
TRIALS = ROOT / "benchmarks" / "results" / "search" / "trials.jsonl"

REST = {
    "ga": {"ceiling_counts_end": True, "end_token": True},
    "graddiff": {"forget_ceiling": 6.0, "ceiling_counts_end": True},
    "rmu": {"scale_skips_first": False},
    "llm-eraser": {"score_tokens": "answer", "ranking": "global"},
    "o3": {"use_wrong_answers": False},
    "tfr": {
        "step": "fisher",
        "budget": 2048,
        "guard_absolute": 0,
        "backtracks": 4,
        "drift_limit": 17,
    },
}


def test_the_presets_are_what_the_search_chose_at_an_equal_budget():
    rows = read_rows(TRIALS)
    # A method that is new here may not have been searched yet.
    searched = [name for name in method_names() if name in json.loads(CHOSEN.read_text())]
    chosen = json.loads(CHOSEN.read_text())
    plan = SearchPlan(methods=tuple(searched), seeds=(1000,), requests=5)
    for method, points in by_point(rows, plan).items():
        means = {n: fmean(row["trade_off"] for row in of.values()) for n, of in points.items()}
        if method != "none":
            best = max(means, key=lambda number: means[number])
            assert (chosen[method]["point"], chosen[method]["trade_off"]) == (best, means[best])
            assert len(means) == chosen[method]["points_tried"] == 12
    for method in searched:
        config = find_method(method).config_class
        settings = config.presets()["fisher" if method == "tfr" else "published"]
        assert {**settings, **chosen[method]["settings"]} == settings
        # The rest is what the defaults were when it was searched.
        rest = {n: v for n, v in settings.items() if n not in chosen[method]["settings"]}
        assert rest == REST.get(method, {})


def test_every_method_was_tried_at_twelve_points_on_a_tuning_seed():
    points: dict[str, dict[int, str]] = {}
    for row in read_rows(TRIALS):
        assert row["seed"] >= 1000
        if row["method"] != "none":
            settings = json.dumps(row["settings"], sort_keys=True)
            known = points.setdefault(row["method"], {}).setdefault(row["point"], settings)
            assert settings == known
    for found in points.values():
        assert len(found) == len(set(found.values())) == 12


@pytest.mark.parametrize("table", method_tables.TABLES)
def test_the_docs_show_the_results(table):
    assert "\n".join(table()) in (ROOT / "benchmarks" / "notebook" / "methods.md").read_text()


def test_the_first_request_is_forgotten_by_every_method_on_two_streams():
    chosen = {method: best["point"] for method, best in json.loads(CHOSEN.read_text()).items()}
    rows = [row for row in read_rows(TRIALS) if row["point"] == chosen.get(row["method"])]
    assert {row["method"] for row in rows} == set(chosen)
    rose = {
        (row["method"], row["stream"])
        for row in rows
        if row["outcomes"][0]["forget_loss_after"] > row["outcomes"][0]["forget_loss_before"]
    }
    # As the notebook says.
    assert {(row["method"], row["stream"]) for row in rows} - rose == {("rmu", "boolq")}


def test_a_method_that_was_not_searched_has_its_defaults_alone():
    class Own(TrainingSettings):
        pass

    assert Own.presets() == {"default": {}}
