"""The search: fair by construction, and every line of it can be run again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.datasets import made_up_folder
from tfrnet.core.errors import InputError
from tfrnet.data.sources import Source
from tfrnet.method import find_method, method_names
from tfrnet_bench.grid import grid, search_space, searchable
from tfrnet_bench.machine import Machine
from tfrnet_bench.search import SearchPlan, choose, read_rows, run_search


@pytest.mark.parametrize("name", method_names())
def test_a_grid_has_twelve_different_points_and_begins_where_it_says(name):
    points = grid(name)
    assert len(points) == 12
    assert len({json.dumps(point, sort_keys=True) for point in points}) == 12
    config = find_method(name).config_class
    default = config.from_dict(search_space(name).start).to_dict()
    assert all(default[key] == value for key, value in points[0].items())
    for point in points:
        config.from_dict({**search_space(name).start, **point})
    half = points[:6]
    assert len({(p["steps"], p.get("learning_rate", p.get("step_guard"))) for p in half}) == 6


def test_no_method_gets_more_trials_than_another():
    plan = SearchPlan(methods=tuple(method_names()))
    trials = plan.trials()
    counts = {name: sum(t.method == name for t in trials) for name in method_names()}
    assert set(counts.values()) == {36}
    assert len({trial.key for trial in trials}) == len(trials)
    # Ended early, all methods have got equally far.
    seen = [t for t in trials if t.method != "none"][: len(method_names()) * 3 * 2]
    assert {sum(t.method == name for t in seen) for name in method_names()} == {6}


def test_reporting_seeds_are_not_tuned_on():
    with pytest.raises(InputError, match="for reporting"):
        SearchPlan(methods=("ga",), seed=0)


def test_unknown_methods_are_named_before_anything_is_loaded():
    with pytest.raises(InputError, match="unknown method 'nope'"):
        SearchPlan(methods=("ga", "nope"))


def test_a_method_that_says_nothing_to_search_is_left_out_unless_named(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(find_method("asu"), "search_space", None)
    found, left_out = searchable()
    assert left_out == ["asu"]
    assert sorted([*found, "asu"]) == sorted(method_names())
    with pytest.raises(InputError, match="method asu declares no search_space"):
        SearchPlan(methods=("ga", "asu"))


def row(method: str, point: int, stream: str, score: float) -> dict:
    return {
        "method": method,
        "point": point,
        "stream": stream,
        "seed": 1000,
        "requests": 5,
        "trade_off": score,
        "settings": {"steps": point},
    }


def test_the_best_mean_over_streams_is_chosen_among_equally_many_points():
    plan = SearchPlan(methods=("ga", "npo"), streams=("a", "b"))
    rows = [row("ga", p, s, v) for p, s, v in ((0, "a", 10), (0, "b", 20), (1, "a", 30))]
    rows += [row("ga", 1, "b", 40), row("ga", 2, "a", 99), row("ga", 2, "b", 99)]
    rows += [row("npo", 0, "a", 50), row("npo", 0, "b", 50), row("npo", 1, "a", 5)]
    rows += [row("npo", 1, "b", 5), row("npo", 2, "a", 100)]  # the third is not whole
    chosen = choose(rows, plan)
    assert chosen["ga"]["point"] == 1
    assert chosen["ga"]["trade_off"] == 35
    assert chosen["ga"]["trade_off_of_defaults"] == 15
    assert chosen["ga"]["settings"] == {"steps": 1}
    assert chosen["npo"]["point"] == 0
    assert {entry["points_tried"] for entry in chosen.values()} == {2}
    with pytest.raises(InputError, match="no point of npo"):
        choose([r for r in rows if r["method"] == "ga"], plan)


def test_results_of_streams_of_another_length_are_not_taken_for_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    short = SearchPlan(methods=("ga",), streams=("a",), requests=2, budget=1)
    long = SearchPlan(methods=("ga",), streams=("a",), requests=5, budget=1)
    first, second = (row("ga", 0, "a", v) | {"key": "ga/0/a/1000"} for v in (10, 20))
    first["requests"] = 2
    results = tmp_path / "trials.jsonl"
    results.write_text(json.dumps(first) + "\n")
    todo: list = []

    def run(plan, machine, trials, deadline):
        todo.extend(trials)
        yield second

    monkeypatch.setattr("tfrnet_bench.search._run", run)
    rows = run_search(long, None, results, lambda row: None)  # type: ignore[arg-type]
    assert "ga/0/a/1000" in {trial.key for trial in todo}
    assert choose(rows, long)["ga"]["trade_off"] == 20
    assert choose(rows, short)["ga"]["trade_off"] == 10


def test_a_line_that_a_crash_cut_off_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    plan = SearchPlan(methods=("ga",), streams=("a",), budget=1)
    whole, torn = (row("ga", p, "a", 10) | {"key": f"ga/{p}/a/1000"} for p in (1, 0))
    results = tmp_path / "trials.jsonl"
    results.write_text(json.dumps(whole) + "\n" + json.dumps(torn)[:40])
    monkeypatch.setattr("tfrnet_bench.search._run", lambda *arguments: iter([torn]))
    assert run_search(plan, None, results, lambda row: None) == [whole, torn]  # type: ignore[arg-type]
    assert read_rows(results) == [whole, torn]


def test_a_search_runs_resumes_and_leaves_the_model_as_it_was(tiny_folder: Path, tmp_path: Path):
    source = Source("folder", made_up_folder(tmp_path / "data", 120))
    plan = SearchPlan(
        methods=("tfr", "ga"),
        streams=("openbookqa", "boolq"),
        requests=1,
        heldout=4,
        budget=1,
        model=str(tiny_folder),
    )
    machine = Machine(source, "cpu")
    results = tmp_path / "out" / "trials.jsonl"
    seen: list = []
    rows = run_search(plan, machine, results, seen.append)
    assert len(rows) == len(seen) == 2 + 2 * 2
    assert rows == read_rows(results)
    again: list = []
    assert run_search(plan, machine, results, again.append) == rows
    assert not again
    for found in rows:
        assert 0 <= found["trade_off"] <= 100
        assert set(found["heldout_accuracy"]) == {"openbookqa", "boolq", "arithmetic"}
        assert len(found["outcomes"]) == (found["method"] != "none")
