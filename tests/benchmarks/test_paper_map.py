"""The map of the paper's rule: tolerances that run together end as they would alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import paper_map_figure as figure
from benchmarks.default_table import STREAMS
from benchmarks.paper_map import (
    BUDGETS,
    cells_of,
    compare,
    heldout_change,
    label_of,
    main,
    run_together,
)
from benchmarks.paper_map import GUARDS as GUARDS_OF_THE_MAP
from tests import tiny
from tests.datasets import made_up_folder
from tfrnet.methods.tfr.config import TFRConfig
from tfrnet.methods.tfr.model import TFRNet
from tfrnet_bench.figures.style import figure_style

# Each of them decides otherwise on some request.
GUARDS = (0.0, 0.0015, 1.0)
REQUESTS = tiny.requests(4)


def make_net(guard: float) -> TFRNet:
    config = TFRConfig.paper(
        budget=24, guard_relative=guard, retain_examples=4, guard_examples=4, max_sparsity=0.3
    )
    model, tokenizer = tiny.make_model(seed=2), tiny.make_tokenizer()
    return TFRNet(model, tokenizer, tiny.examples(12), config, guard=tiny.examples(4, 50))


def test_tolerances_that_run_together_end_as_they_would_alone():
    courses = run_together(make_net(max(GUARDS)), REQUESTS, GUARDS)
    together = {guard: course for course in courses for guard in course.guards}
    for guard in GUARDS:
        net = make_net(guard)
        outcomes = [net.forget(request) for request in REQUESTS]
        course = together[guard]
        assert list(course.accepted) == [outcome.accepted for outcome in outcomes]
        assert list(course.selected) == [outcome.selected for outcome in outcomes]
        rises = [each.guard_loss_after / each.guard_loss_before for each in outcomes]
        assert list(course.rises) == pytest.approx(rises, rel=1e-5)
        for name, value in net.state.tensors().items():
            torch.testing.assert_close(course.state.tensors()[name], value)
    assert len({course.accepted for course in courses}) == len(GUARDS)


def test_when_it_is_late_all_end_after_the_same_request():
    courses = run_together(make_net(1.0), REQUESTS, GUARDS, is_late=lambda: True)
    assert {len(course.accepted) for course in courses} == {1}
    assert sorted(guard for course in courses for guard in course.guards) == sorted(GUARDS)


def measured(right: list[list[bool]], heldout: dict[str, float]) -> dict[str, Any]:
    return {"right": right, "losses": [[1.0, 3.0]] * len(right), "heldout": heldout}


def test_only_known_items_can_be_forgotten():
    before = measured([[True, True], [True, False], [True, True]], {"a": 80.0, "b": 60.0})
    after = measured([[False, True], [False, True], [True, False]], {"a": 70.0, "b": 64.0})
    found = compare(before, after, 2)
    assert found["requested"]["known"] == 3
    assert found["requested"]["forgotten"] == pytest.approx(100 * 2 / 3)
    assert found["requested"]["right"] == [75.0, 50.0]
    assert found["never"] == {"items": 2, "right": [100.0, 50.0], "known": 2, "forgotten": 50.0}
    assert found["nats"] == [2.0, 2.0]
    assert heldout_change(found) == -3.0


def test_of_nothing_known_no_share_is_forgotten():
    nothing = measured([[False, False]], {"a": 0.0})
    assert compare(nothing, nothing, 1)["requested"]["forgotten"] is None
    assert compare(nothing, nothing, 1)["never"]["items"] == 0


def test_cells_that_failed_are_run_again(tmp_path: Path):
    path = tmp_path / "cells.jsonl"
    assert cells_of(path) == []
    failed, good = cell("a", "boolq", 32, 0.05, error="no memory"), cell("b", "boolq", 32, 0.05)
    path.write_text("".join(json.dumps(row | {"seed": 1}) + "\n" for row in (failed, good)))
    assert [row["model"] for row in cells_of(path)] == ["b"]


def test_results_name_a_model_without_its_folder():
    assert [label_of(name) for name in ("here/gemma3-tasks", "smollm2-135m")] == [
        "gemma3-tasks",
        "smollm2-135m",
    ]


@pytest.mark.slow
def test_a_run_goes_on_with_the_cells_that_are_missing(tiny_folder: Path, tmp_path: Path, capsys):
    data = made_up_folder(tmp_path / "data", 300)
    path = tmp_path / "cells.jsonl"
    given = [str(path), "--data-dir", str(data), "--model", f"natural={tiny_folder}"]
    sizes = ["--requests", "2", "--spare", "1", "--heldout", "2", "--device", "cpu"]
    asked = [*given, *sizes, "--streams", "openbookqa", "--budgets", "32", "--guards", "0.05"]
    main(asked)
    first = path.read_text()
    main([*asked, "1.0"])
    assert path.read_text().startswith(first)
    # As if the time had not sufficed for the first: it runs again.
    path.write_text(path.read_text().replace('"requests": 2', '"requests": 1', 1))
    main(asked)
    rows = cells_of(path)
    assert [row["requests"] for row in rows] == [2, 2]
    assert [row["guard_relative"] for row in rows] == [0.05, 1.0]
    assert {row["model"] for row in rows} == {tiny_folder.name}
    assert [row["requested"]["items"] for row in rows] == [16, 16]
    assert [row["never"]["items"] for row in rows] == [8, 8]
    assert len(capsys.readouterr().out.splitlines()) == 3


# The tables and the figure


def cell(model: str, stream: str, budget: int, guard: float, **changes: Any) -> dict[str, Any]:
    known = {"items": 160, "right": [50.0, 30.0], "known": 80, "forgotten": 40.0}
    return {
        "model": model,
        "knowledge": "natural",
        "task": stream,
        "budget": budget,
        "guard_relative": guard,
        "requests": 20,
        "accepted": 2,
        "accepted_at": [1, 3],
        "selected": [128, 128, 0],
        "channels": 1000,
        "dormant": 25,
        "guard_rises": [1.1, 1.5],
        "guard_first": 2.0,
        "guard_last": 3.0,
        "requested": known,
        "never": known,
        "heldout": {"a": [60.0, 50.0]},
        **changes,
    }


def every_cell(model: str) -> list[dict[str, Any]]:
    return [
        cell(model, stream, budget, guard)
        for stream in STREAMS
        for budget in BUDGETS
        for guard in GUARDS_OF_THE_MAP
    ]


def test_the_papers_setting_has_a_line_for_each_model_and_stream():
    rows = [
        cell("small", "boolq", 128, 0.05, accepted=0, accepted_at=[]),
        cell("small", "boolq", 128, 0.2, accepted=19),
        cell("small", "boolq", 32, 0.05, guard_rises=[1.0, 1.02, 1.1]),
    ]
    *_, line = figure.paper_table(rows).splitlines()
    assert line == (
        "| small | natural | boolq | 80 of 160 | 2.00 | +0.6 (x1.30) | 0 of 20 | x1.02 | 2 of 20 |"
    )


def test_only_cells_that_accepted_and_knew_enough_are_compared():
    few = {"items": 80, "right": [5.0, 0.0], "known": 4, "forgotten": 100.0}
    kept = {"items": 80, "right": [50.0, 50.0], "known": 40, "forgotten": 0.0}
    rows = [
        cell("small", "boolq", 128, 0.05, never=kept),
        cell("small", "boolq", 128, 0.2, never=few),
        cell("small", "boolq", 128, 1.0, accepted=0),
    ]
    assert figure.comparable(rows) == rows[:1]
    assert figure.accepted_table(rows).splitlines()[2:] == [
        "| small | boolq | 128 | 5 % | 2 of 20 | 25 | 40 % | 0 % | 0.00 | -10.0 | x1.50 |"
    ]


def test_an_excess_may_be_chance():
    row = cell("small", "boolq", 128, 0.05)
    assert figure.excess(row) == 0
    assert 0.5 < figure.chance(row) < 1


def test_the_figure_says_of_every_cell_how_many_were_accepted():
    cells = every_cell("small") + every_cell("large")
    # Each has a number of its own.
    missing, *rows = [row | {"accepted": 1 + n, "requests": 99} for n, row in enumerate(cells)]
    with figure_style():
        drawn = figure.draw(rows)
    panels = {axes.get_title(): axes for axes in drawn.axes if axes.images}
    assert len(panels) == 2 * len(STREAMS)
    found = {
        (title, *text.get_position()): text.get_text()
        for title, axes in panels.items()
        for text in axes.texts
    }
    expected = {place_in(row): f"{row['accepted']} of 99\n40 | 40\n-10" for row in rows}
    assert found == expected | {place_in(missing): "not run"}
    shares = panels["large (natural), boolq"].images[0].get_array()
    last = rows[-1]
    assert shares[-1, -1] == pytest.approx(100 * last["accepted"] / 99)
    for axes in panels.values():
        assert [tick.get_text() for tick in axes.get_xticklabels()] == list(map(str, BUDGETS))
        tolerances = [f"{100 * guard:.0f} %" for guard in GUARDS_OF_THE_MAP]
        assert [tick.get_text() for tick in axes.get_yticklabels()] == tolerances


def place_in(row: dict[str, Any]) -> tuple[str, int, int]:
    """The title of a cell's panel, and where in it the cell stands."""
    title = f"{row['model']} ({row['knowledge']}), {row['task']}"
    return title, BUDGETS.index(row["budget"]), GUARDS_OF_THE_MAP.index(row["guard_relative"])
