"""The page about calibrated forgetting holds what its cells say."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean, harmonic_mean
from typing import Any

import pytest

from benchmarks.calibrated import honest_scores, method_of
from tests.methods.tfr.plain import PLAIN
from tfrnet import TFRConfig
from tfrnet_bench.constants import FIRST_TUNING_SEED

FOLDER = Path(__file__).parents[2] / "benchmarks"
PAGE = (FOLDER / "notebook" / "calibrated.md").read_text()
LINES = (FOLDER / "results" / "research" / "calibrated.jsonl").read_text().splitlines()
CELLS: list[dict[str, Any]] = [json.loads(line) for line in LINES]
MEASURED = [cell for cell in CELLS if "error" not in cell]
STREAMS = [cell for cell in MEASURED if "honest" in cell]
NEIGHBOURS: list[dict[str, Any]] = [
    json.loads(line)
    for line in (FOLDER / "results/research/calibrated-neighbours.jsonl").read_text().splitlines()
]
# Settings that did not help, or are constants now.
DROPPED = {"secret_tokens", "level_rivals"}


def name_of(cell: dict[str, Any]) -> str:
    return f"{cell['candidate']}-{cell['task']}-{cell['seed']}"


def test_all_cells_are_of_tuning_seeds():
    assert min(cell["seed"] for cell in CELLS) >= FIRST_TUNING_SEED
    assert f"{len(CELLS) - len(MEASURED)} cells" in PAGE.replace("Five", "5")


@pytest.mark.parametrize("cell", STREAMS, ids=name_of)
def test_a_streams_row_is_that_of_its_cell(cell):
    scores = f"{cell['honest']:.1f} ({cell['forgetting']:.0f}, {cell['keeping']:.0f})"
    wanted = (cell["candidate"], scores, f"| {cell['request_seconds']:.1f} |")
    assert any(all(part in line for part in wanted) for line in PAGE.splitlines())


@pytest.mark.parametrize("cell", [cell for cell in MEASURED if cell["task"] == "tofu"], ids=name_of)
def test_tofus_row_is_that_of_its_cell(cell):
    if cell["requests"] < 20:
        return
    retain = cell["sets"]["retain"]["probability"]
    assert any(cell["candidate"] in line and f"{retain:.3f}" in line for line in PAGE.splitlines())


@pytest.mark.parametrize("run", NEIGHBOURS, ids=lambda run: f"{run['variant']}-{run['requests']}")
def test_a_row_of_the_demo_is_that_of_its_run(run):
    start = f"{run['variant']}{' after two requests' if run['requests'] == 2 else ':'}"
    row = next(line for line in PAGE.splitlines() if line.replace("*", "").startswith(f"| {start}"))
    accuracy = list(run["accuracy"].values())
    figures = [f"{accuracy[0]:.1f} %", f"{accuracy[1]:.1f} %", f"{run['guard'][1]:.3f}"]
    figures += [f"{run['fluency']['perplexity_ratio']:.2f}", f"| {run['cpu_seconds']:.0f} |"]
    assert [figure for figure in figures if figure not in row.replace("*", "")] == []


def test_the_presets_means_are_those_of_its_cells():
    """Rivals do not act on symbols: there the variant without them is the same."""
    for name, shown in (("fit", "95.1 and 97.1"), ("default", "92.8 and 90.3")):
        means = []
        for seed in (1000, 1001):
            own = [c for c in STREAMS if c["seed"] == seed]
            picked = [
                c
                for c in own
                if c["candidate"]
                == ("fit-rivals-q50" if name == "fit" and c["task"] == "openbookqa" else name)
            ]
            assert len(picked) == 3
            means.append(fmean(c["honest"] for c in picked))
        assert " and ".join(f"{mean:.1f}" for mean in means) == shown
        assert shown in PAGE


def test_the_preset_is_the_cells_setting():
    (settings, *others) = [c["settings"] for c in CELLS if c["candidate"] == "fit-rivals-q50"]
    assert all(other == settings for other in others)
    preset = TFRConfig.preset("calibrated")
    since = {name: getattr(preset, name) for name in ("drift_limit", "least_reached")}
    assert TFRConfig.from_dict(PLAIN | {"held_rivals": None} | settings | since) == preset


@pytest.mark.parametrize("cell", CELLS, ids=name_of)
def test_a_cells_settings_still_mean_something(cell):
    settings = {k: v for k, v in cell["settings"].items() if k not in DROPPED}
    TFRConfig.from_record(PLAIN | settings)


def test_scores_count_requested_items_only():
    points = [
        {"request": 0, "by_request": [100, 100], "heldout": {"a": 80}, "losses": [[0.1], [0.1]]},
        {"request": 1, "by_request": [50, 100], "heldout": {"a": 60}, "losses": [[3.0], [0.1]]},
    ]
    for point in points:
        point["forget"] = fmean(point["by_request"])
    scores = honest_scores(points, 25.0)
    assert scores["forgetting"] == pytest.approx(100 * 50 / 75)
    assert scores["keeping"] == 75
    assert scores["honest"] == pytest.approx(harmonic_mean([100 * 50 / 75, 75]))
    assert scores["not_yet"] == 100
    assert scores["nats_after"] == 3


# Reporting seeds


def longest_runs() -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The longest run of every stream's cell, by candidate and stream."""
    lines = (FOLDER / "results" / "research" / "calibrated-report.jsonl").read_text().splitlines()
    runs: dict[tuple[str, str, int], dict[str, Any]] = {}
    for cell in map(json.loads, lines):
        key = cell["candidate"], cell["task"], cell["seed"]
        if "honest" in cell and cell["requests"] > runs.get(key, {"requests": 0})["requests"]:
            runs[key] = cell
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for (candidate, task, _), cell in sorted(runs.items()):
        found.setdefault((candidate, task), []).append(cell)
    return found


@pytest.mark.parametrize(("key", "cells"), longest_runs().items(), ids=str)
def test_a_row_of_reporting_seeds_is_that_of_its_cells(key, cells):
    assert [cell["seed"] for cell in cells] == [3, 4, 5]
    mean, forgetting, keeping, score = (
        fmean(cell[name] for cell in cells)
        for name in ("honest", "forgetting", "keeping", "trade_off")
    )
    wanted = (
        f"{mean:.1f}",
        f"({forgetting:.0f}, {keeping:.0f})",
        " ".join(f"{cell['honest']:.1f}" for cell in cells),
        f"| {score:.1f} |",
    )
    rows = PAGE[: PAGE.index("**TOFU, seed 3**")].splitlines()
    assert any(all(part in row for part in wanted) for row in rows), wanted


def test_the_means_of_reporting_seeds_are_those_of_the_streams():
    runs = longest_runs()
    means = [
        fmean(
            fmean(cell["honest"] for cell in cells) for key, cells in runs.items() if key[0] == name
        )
        for name in ("calibrated", "default", "simnpo")
    ]
    assert "**{:.1f}** / {:.1f} / {:.1f}".format(*means) in PAGE


def test_a_candidate_may_name_another_method_and_a_preset():
    method, settings = method_of({"method": "simnpo", "preset": "tuned", "steps": 3})
    assert (method.method, settings.steps, settings.beta) == ("simnpo", 3, 0.5)
    assert method_of({"preset": "calibrated"})[1] == TFRConfig.preset("calibrated")
