"""The search: fair by construction, and every line of it can be run again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.datasets import made_up_folder
from tfrnet.core.errors import InputError
from tfrnet.core.search_space import SearchSpace
from tfrnet.data.sources import Source
from tfrnet.method import find_method, method_names
from tfrnet_bench.machine import Machine
from tfrnet_bench.search.board import Board
from tfrnet_bench.search.budget import budget, cost_lines, costs, trials_that_fit
from tfrnet_bench.search.choice import choose
from tfrnet_bench.search.grid import (
    edges,
    next_point,
    search_space,
    searchable,
    settings_at,
    spread,
    start_point,
)
from tfrnet_bench.search.plan import SearchPlan
from tfrnet_bench.search.rows import read_rows
from tfrnet_bench.search.run import run_search
from tfrnet_bench.search.summary import edge_lines, summary, summary_lines
from tfrnet_bench.search.trial import scores

SPACE = SearchSpace({"learning_rate": (1e-6, 1e-5, 1e-4), "steps": (1, 5, 25)})


# Points


@pytest.mark.parametrize("name", method_names())
def test_a_grid_begins_at_its_start_and_fills_evenly(name):
    points = spread(name, 24)
    assert len({json.dumps(point, sort_keys=True) for point in points}) == 24
    changes = [f"{key}={value}" for key, value in search_space(name).start.items()]
    assert settings_at(name, points[0]) == find_method(name).config_class().with_overrides(changes)
    for point in points:
        settings_at(name, point)  # raises if a setting has no effect
    for axis, values in search_space(name).axes.items():
        seen = [point[axis] for point in points[1:]]
        assert set(seen) == set(values)
        assert max(map(seen.count, values)) - min(map(seen.count, values)) <= 6
    assert points[:7] == spread(name, 7)


def test_no_grid_ends_at_its_start_but_where_there_is_nothing_beyond():
    for name in method_names():
        for axis, values in search_space(name).axes.items():
            start = start_point(name)[axis]
            if isinstance(start, float) and (name, axis) != ("tfr", "retain_examples"):
                assert start not in (values[0], values[-1]), (name, axis)


@pytest.fixture
def _small_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find_method("ga"), "search_space", SPACE)
    monkeypatch.setattr(find_method("npo"), "search_space", SearchSpace({"steps": (5, 10, 20)}))


@pytest.mark.usefixtures("_small_grid")
def test_the_next_point_is_beside_the_best_that_has_one():
    best, worse = {"learning_rate": 1e-5, "steps": 5}, {"learning_rate": 1e-6, "steps": 1}
    assert next_point("ga", [best, worse]) == {"learning_rate": 1e-4, "steps": 5}
    around = [best, *({**best, "learning_rate": r} for r in (1e-4, 1e-6))]
    around += [{**best, "steps": steps} for steps in (25, 1)]
    assert next_point("ga", around) == {"learning_rate": 1e-4, "steps": 25}
    assert next_point("npo", [{"steps": steps} for steps in (10, 5, 20)]) is None


@pytest.mark.usefixtures("_small_grid")
def test_an_edge_is_told_where_the_best_is_the_last_that_was_tried():
    middle = {"learning_rate": 1e-5, "steps": 5}
    high = {"learning_rate": 1e-4, "steps": 5}
    low = {"learning_rate": 1e-6, "steps": 25}
    assert edges("ga", high, [middle, high, low]) == [
        "learning_rate=0.0001 is the highest tried (the grid ends there, widen it)",
        "steps=5 is the lowest tried (try more)",
    ]
    assert edges("ga", middle, [middle, high, low, {**middle, "steps": 1}]) == []


@pytest.mark.usefixtures("_small_grid")
def test_a_value_that_is_no_longer_in_the_grid_has_no_neighbour_and_is_no_edge():
    gone, middle = {"learning_rate": 3e-5, "steps": 5}, {"learning_rate": 1e-5, "steps": 5}
    assert next_point("ga", [gone, middle]) == {**gone, "steps": 25}
    assert edges("ga", {**gone, "steps": 25}, [gone, middle, {**gone, "steps": 25}]) == [
        "steps=25 is the highest tried (the grid ends there, widen it)"
    ]
    found = edges("ga", middle, [gone, middle])
    assert "learning_rate=1e-05 is the highest tried (try more)" in found


def test_kinds_and_no_limit_are_no_edge():
    point = {"learning_rate": 1e-5, "steps": 5, "forget_ceiling": None}
    others = [{**point, "forget_ceiling": 30.0}, {**point, "learning_rate": 2e-6, "steps": 2}]
    others += [{**point, "learning_rate": 1e-4, "steps": 10}]
    assert edges("ga", point, [point, *others]) == []
    assert "gate" not in " ".join(edges("o3", start_point("o3"), [start_point("o3")]))


# Plans


def test_reporting_seeds_are_not_tuned_on():
    with pytest.raises(InputError, match="for reporting"):
        SearchPlan(methods=("ga",), seeds=(1000, 0))


def test_a_search_without_seeds_is_refused():
    with pytest.raises(InputError, match="has no seeds"):
        SearchPlan(("ga",), seeds=())


@pytest.mark.parametrize("line", ["{", "[]"])
def test_a_line_that_is_no_trial_is_named(line: str, tmp_path: Path):
    (tmp_path / "trials.jsonl").write_text(f'{{"key": "a"}}\n{line}\n')
    with pytest.raises(InputError, match=r"trials.jsonl:2 is not a trial"):
        read_rows(tmp_path / "trials.jsonl")


def test_whole_streams_of_two_tuning_seeds_are_the_rule():
    plan = SearchPlan(methods=("ga",))
    assert plan.seeds == (1000, 1001)
    assert plan.requests == 20
    assert plan.checkpoints == (5, 10, 15, 20)
    assert len(plan.places) == 6


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


# What comes next

TWO = {"methods": ("ga", "npo"), "streams": ("a", "b"), "seeds": (1000, 1001), "requests": 4}


def row(method: str, point: int, stream: str, value: float, seed: int = 1000, **more) -> dict:
    settings = more.pop("settings", {"steps": point})
    return {
        "key": f"{method}/{point}/{stream}/{seed}",
        "method": method,
        "point": point,
        "stream": stream,
        "seed": seed,
        "requests": 4,
        "honest_trade_off": value,
        "trade_off": 100 - value,
        "settings": settings,
        "checkpoints": [{"request": 0}, {"request": 4}],
        "unlearning_seconds": 8.0,
        "seconds": 10.0,
    } | more


def play(plan: SearchPlan, value) -> list[dict]:
    """Run a search in which every trial scores at once what `value` says of its settings."""
    board, done = Board(plan, [], "honest"), []
    while waiting := board.waiting(()):
        trial = waiting[0]
        of = 0.0 if trial.method == "none" else value(trial.method, trial.settings)
        done.append(
            row(trial.method, trial.point, trial.stream, of, trial.seed, settings=trial.settings)
        )
        board.add(done[-1])
    return done


@pytest.mark.usefixtures("_small_grid")
def test_every_method_gets_as_many_trials_and_the_second_half_goes_where_the_best_is():
    plan = SearchPlan(**TWO, trials=3)
    done = play(plan, lambda method, settings: settings["steps"])
    assert [r["method"] for r in done[:4]] == ["none"] * 4
    for method in plan.methods:
        own = [r for r in done if r["method"] == method]
        assert len(own) == 3 * 4
        assert [r["point"] for r in own] == [0] * 4 + [1] * 4 + [2] * 4
    best = choose(done, plan)
    assert best["npo"]["settings"] == {"steps": 20}
    assert best["npo"]["edges"] == ["steps=20 is the highest tried (the grid ends there, widen it)"]
    assert {entry["points_tried"] for entry in best.values()} == {3}
    # Ended early, all methods have got equally far.
    seen = [r["method"] for r in done[4:]]
    assert seen[:4] != seen[4:8] and set(seen[:8]) == {"ga", "npo"}


@pytest.mark.slow
@pytest.mark.usefixtures("_small_grid")
def test_a_search_goes_on_from_what_is_there_also_with_more_trials():
    plan = SearchPlan(**TWO, trials=4)
    done = play(plan, lambda method, settings: -settings["steps"])
    for cut in (3, 5, 9, 14, 25):
        board = Board(plan, done[:cut], "honest")
        again = list(done[:cut])
        while waiting := board.waiting(()):
            key = waiting[0].key
            again.append(next(r for r in done if r["key"] == key))
            assert again[-1]["settings"] == waiting[0].settings
            board.add(again[-1])
        assert sorted(r["key"] for r in again) == sorted(r["key"] for r in done)
    # A trial that ended before an earlier one keeps its number.
    holes = [r for r in done if (r["method"], r["point"]) != ("ga", 0)]
    first = next(t for t in Board(plan, holes, "honest").waiting(()) if t.method == "ga")
    assert (first.point, first.settings) == (0, start_point("ga"))
    more = SearchPlan(**TWO, trials=6)
    waiting = Board(more, done, "honest").waiting(())
    assert {t.point for t in waiting if t.method == "ga"} == {4}


@pytest.mark.usefixtures("_small_grid")
def test_the_best_mean_is_chosen_among_equally_many_points_by_either_score():
    plan = SearchPlan(**TWO | {"seeds": (1000,)}, trials=3)
    point = {n: {"learning_rate": 1e-5, "steps": (5, 1, 25)[n]} for n in range(3)}
    rows = [
        row("ga", n, stream, value, settings=point[n])
        for n, stream, value in ((0, "a", 10), (0, "b", 20), (1, "a", 30), (1, "b", 40))
    ]
    rows += [row("ga", 2, stream, 99, settings=point[2]) for stream in "ab"]
    steps = {n: {"steps": (10, 5, 20)[n]} for n in range(3)}
    rows += [row("npo", 0, stream, 50, settings=steps[0]) for stream in "ab"]
    rows += [row("npo", 1, stream, 5, settings=steps[1]) for stream in "ab"]
    rows += [row("npo", 2, "a", 100, settings=steps[2])]  # the third is not whole
    chosen = choose(rows, plan)
    assert (chosen["ga"]["point"], chosen["ga"]["score"]) == (1, 35)
    assert chosen["ga"]["score_of_first"] == 15
    assert chosen["ga"]["by_stream"] == {"a": 30, "b": 40}
    assert chosen["npo"]["point"] == 0
    assert {entry["points_tried"] for entry in chosen.values()} == {2}
    assert choose(rows, plan, "paper")["ga"]["point"] == 0
    assert choose(rows, plan, "paper")["npo"]["point"] == 1
    with pytest.raises(InputError, match="no point of npo"):
        choose([r for r in rows if r["method"] == "ga"], plan)


@pytest.mark.usefixtures("_small_grid")
def test_the_output_says_the_budget_both_choices_and_the_edges():
    plan = SearchPlan(**TWO, trials=3)
    found = summary(play(plan, lambda method, settings: settings["steps"]), plan)
    assert found["budget"]["trials"] == 3
    assert found["budget"]["seconds"] == {"ga": 120.0, "npo": 120.0}
    lines = "\n".join(summary_lines(found, plan))
    assert "3 of 3 trials, each 2 streams x 2 seeds x 4 requests" in lines
    assert "best by the honest Trade-off:" in lines
    assert "best by the paper's Trade-off:" in lines
    assert any("npo by the honest Trade-off lies on the edge" in e for e in edge_lines(found))


# Costs


def test_how_many_trials_fit_is_worked_out_from_seconds_per_request():
    plan = SearchPlan(**TWO | {"requests": 20}, trials=1)
    rows = [row(name, 0, "a", 1.0, settings=start_point(name)) for name in ("ga", "npo")]
    known = costs(rows, plan)  # 2 s a request, 2 s to measure
    assert known["ga"].request == 2.0
    assert known["ga"].stream == 20 * 2 + 4 * 2
    # 2 methods x 4 places x 48 s of 16 processes with 480 s each.
    assert trials_that_fit(known, plan, 16, 8) == pytest.approx(480 * 16 / 384)
    assert "20.00 trials of every method" in cost_lines(rows, plan, 16, 8)[-1]
    assert cost_lines(rows[:1], plan, 16, 8)[-1] == "not measured yet: npo"
    assert budget(rows, SearchPlan(**TWO))["trials"] == 0
    # Points with more steps take longer.
    points = spread("ga", 4)
    mean = sum(point["steps"] for point in points) / 4
    more = costs(rows, SearchPlan(**TWO, trials=12))["ga"].request
    assert more == pytest.approx(2.0 * mean / points[0]["steps"])


# Scores


def test_both_scores_of_a_stream_are_those_of_their_definitions():
    def point(request, forget, seen, held):
        return {"request": request, "forget": forget, "seen": seen, "heldout": {"x": held}}

    found = scores([point(0, 90, 100, 80), point(1, 50, 10, 60), point(2, 30, 40, 40)], 25.0)
    # Forgotten: (100 - 25) / 75 and (100 - 40) / 75. Kept: 60 / 80 and 40 / 80.
    assert found["forgotten"] == pytest.approx(90)
    assert found["kept"] == pytest.approx(62.5)
    assert found["honest_trade_off"] == pytest.approx(2 * 90 * 62.5 / 152.5)
    assert found["trade_off"] == pytest.approx(2 * 60 * 50 / 110)


# Running


def test_results_of_streams_of_another_length_are_not_taken_for_its_own():
    short = SearchPlan(**TWO | {"methods": ("ga",)}, trials=1)
    long = SearchPlan(**TWO | {"methods": ("ga",), "requests": 20}, trials=1)
    settings = start_point("ga")
    rows = [
        row("ga", 0, stream, value, seed, settings=settings, requests=requests)
        for requests, value in ((4, 10), (20, 20))
        for stream, seed in short.places
    ]
    assert choose(rows, long)["ga"]["score"] == 20
    assert choose(rows, short)["ga"]["score"] == 10


@pytest.mark.parametrize(
    "change", [{"model": "another"}, {"dtype": "bfloat16"}, {"heldout": 20}], ids=str
)
def test_results_of_another_model_dtype_or_heldout_size_are_not_taken_for_its_own(change):
    plan = SearchPlan(**TWO | {"methods": ("ga",)}, trials=1)
    other = replace(plan, **change)
    rows = [
        row("ga", 0, stream, value, seed, settings=start_point("ga"), seconds=seconds) | of.setup
        for of, value, seconds in ((plan, 10, 10.0), (other, 20, 12.0))
        for stream, seed in plan.places
    ]
    for wanted, value, measuring in ((plan, 10, 2.0), (other, 20, 4.0)):
        assert choose(rows, wanted)["ga"]["score"] == value
        assert budget(rows, wanted)["trials"] == 1
        assert costs(rows, wanted)["ga"].measuring == measuring
    first = rows[: len(plan.places)]
    said = budget(first, other)
    assert (said["trials"], said["seconds"]) == (0, {"ga": 0})
    assert {name: said[name] for name in change} == change
    assert len(Board(other, first, "honest").waiting(())) == len(plan.places)


def test_a_model_is_known_by_its_files_whatever_it_is_called(tiny_folder: Path, tmp_path: Path):
    plan = tiny_plan(tiny_folder)
    (tmp_path / "link").symlink_to(tiny_folder)
    rows = [row("ga", 0, "openbookqa", 1.0, requests=2) | plan.setup]
    assert replace(plan, model=str(tmp_path / "link")).own(rows) == rows


def test_rows_of_before_count_as_measured_with_the_defaults():
    plan = SearchPlan(**TWO)
    rows = [row("ga", 0, "a", 1.0)]
    assert plan.own(rows) == rows
    for change in ({"model": "another"}, {"dtype": "bfloat16"}, {"heldout": 20}):
        assert replace(plan, **change).own(rows) == []


def tiny_plan(tiny_folder: Path, **changes) -> SearchPlan:
    values = {
        "methods": ("npo", "ga"),
        "streams": ("openbookqa",),
        "seeds": (1000,),
        "requests": 2,
        "heldout": 2,
        "trials": 1,
        "model": str(tiny_folder),
    }
    return SearchPlan(**values | changes)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    return Source("folder", made_up_folder(tmp_path_factory.mktemp("data"), 120))


@pytest.mark.slow
def test_a_search_runs_resumes_and_leaves_the_model_as_it_was(
    tiny_folder: Path, tmp_path: Path, source: Source
):
    plan, machine = tiny_plan(tiny_folder), Machine(source, "cpu")
    results = tmp_path / "out" / "trials.jsonl"
    seen: list = []
    rows = run_search(plan, machine, results, seen.append)
    assert len(rows) == len(seen) == plan.cells == 1 + 2
    assert rows == read_rows(results)
    again: list = []
    assert run_search(plan, machine, results, again.append) == rows
    assert not again
    results.write_text(results.read_text()[:-40])  # as a crash leaves it
    run_search(plan, machine, results, again.append)
    assert [r["key"] for r in again] == [rows[-1]["key"]]
    assert again[0]["checkpoints"] == rows[-1]["checkpoints"]
    other = Machine(Source("folder", made_up_folder(tmp_path / "data", 150)), "cpu")
    with pytest.raises(InputError, match=r"trials.jsonl has trials on other data \(openbookqa"):
        run_search(plan, other, results, again.append)
    for found in rows:
        assert 0 <= found["trade_off"] <= 100
        assert {name: found[name] for name in plan.setup} == plan.setup
        assert set(found["checkpoints"][-1]["heldout"]) == {"openbookqa", "boolq", "arithmetic"}
        assert len(found.get("outcomes", ())) == 2 * (found["method"] != "none")
        if found["method"] != "none":
            assert [p["request"] for p in found["checkpoints"]] == [0, 1, 2]
            assert settings_at(found["method"], found["settings"])
    found = summary(rows, plan)
    assert found["budget"]["trials"] == 1
    assert set(found["honest"]) == set(found["paper"]) == {"npo", "ga"}


@pytest.mark.slow
def test_what_fails_or_comes_too_late_is_told_and_tried_again(
    tiny_folder: Path, tmp_path: Path, source: Source, monkeypatch: pytest.MonkeyPatch
):
    plan = tiny_plan(tiny_folder, methods=("ga",), requests=1)
    machine, results = Machine(source, "cpu"), tmp_path / "trials.jsonl"
    seen: list = []

    def fail(*arguments, **options):
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(find_method("ga"), "forget", fail)
        run_search(plan, machine, results, seen.append)
    assert "out of memory" in seen[-1]["error"]
    assert len(read_rows(results)) == 1
    with monkeypatch.context() as patch:
        patch.setattr("tfrnet_bench.search.trial.Stage.is_over", lambda stage: True)
        run_search(plan, machine, results, seen.append)
    assert seen[-1] == {"key": "ga/0/openbookqa/1000", "late": True}
    assert run_search(plan, machine, results, seen.append, minutes=0) == read_rows(results)
    assert len(read_rows(results)) == 1
    run_search(plan, machine, results, seen.append, minutes=30)
    assert len(read_rows(results)) == 2
