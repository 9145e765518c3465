"""Which plans may share the folder of a run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.bench.made_up import header
from tfrnet.core.errors import InputError
from tfrnet.method import find_method
from tfrnet_bench.run.plan import BenchPlan
from tfrnet_bench.run.plan_record import record_plan
from tfrnet_bench.run_folder import read_plans


def plan(*experiments: str, **changes: Any) -> BenchPlan:
    options = {"experiments": experiments, "methods": ("ga",), "seeds": (3,)} | changes
    return BenchPlan(**options)


def run_cells(folder: Path, done: BenchPlan) -> None:
    """Record a plan, and write cells with its settings."""
    record_plan(folder, done)
    for cell in done.cells():
        settings = done.settings(cell.variant)
        result = header(cell.kind, cell.variant.label, cell.stream, cell.seed) | {
            "method": cell.variant.method,
            "preset": cell.variant.preset,
            "settings": settings.to_dict() if settings else {},
        }
        place = folder / "cells" / str(cell.key)
        place.mkdir(parents=True, exist_ok=True)
        (place / "result.json").write_text(json.dumps(result))


@pytest.mark.parametrize(
    ("experiment", "field"),
    [
        ("main", "model"),
        ("main", "dtype"),
        ("tofu", "tofu_model"),
        ("tofu", "oracle"),
        ("lume", "lume_model"),
        ("knowundo", "knowundo_model"),
    ],
)
def test_cells_of_another_model_are_not_mixed_in(tmp_path: Path, experiment: str, field: str):
    record_plan(tmp_path, plan(experiment))
    with pytest.raises(InputError, match=f"was made with another {field}"):
        record_plan(tmp_path, plan(experiment, **{field: "other"}))
    assert len(read_plans(tmp_path)) == 1


@pytest.mark.parametrize(
    ("experiment", "field"), [("main", "tofu_model"), ("lume", "model"), ("tofu", "lume_model")]
)
def test_a_model_that_neither_or_only_one_of_them_uses_may_differ(
    tmp_path: Path, experiment: str, field: str
):
    record_plan(tmp_path, plan(experiment))
    record_plan(tmp_path, plan(experiment, **{field: "other"}))
    record_plan(tmp_path, plan("knowundo", **{field: "a third"}))
    assert len(read_plans(tmp_path)) == 3


def test_an_oracle_may_be_added_but_not_changed(tmp_path: Path):
    record_plan(tmp_path, plan("main"))
    record_plan(tmp_path, plan("main", task_oracle="one"))
    with pytest.raises(InputError, match="was made with another task_oracle"):
        record_plan(tmp_path, plan("main", task_oracle="other"))
    record_plan(tmp_path, plan("main"))


def test_another_preset_of_a_method_that_has_cells_is_refused(tmp_path: Path):
    done = plan("main")
    run_cells(tmp_path, done)
    with pytest.raises(InputError, match="cells of ga with the preset tuned, whose settings are"):
        record_plan(tmp_path, replace(done, preset="default", seeds=(4,)))
    with pytest.raises(InputError, match="not those of default; choose another folder with --out"):
        record_plan(tmp_path, replace(done, preset="default", experiments=("robust",)))
    assert len(read_plans(tmp_path)) == 1


def test_more_seeds_other_methods_and_presets_with_the_same_settings_may_be_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    done = plan("main")
    run_cells(tmp_path, done)
    record_plan(tmp_path, replace(done, seeds=(3, 4, 5)))
    record_plan(tmp_path, replace(done, methods=("npo",), preset="default"))
    # What was tuned in the meantime is computed again under its own preset.
    config = find_method("ga").config_class
    tuned = dict(config.presets()["tuned"])
    monkeypatch.setattr(config, "tuned", tuned | {"steps": tuned.get("steps", 1) + 1})
    record_plan(tmp_path, done)
    monkeypatch.setattr(config, "published", tuned)
    record_plan(tmp_path, replace(done, preset="published"))
    assert len(read_plans(tmp_path)) == 4


def test_settings_that_a_method_no_longer_has_are_other_settings(tmp_path: Path):
    done = plan("main")
    run_cells(tmp_path, done)
    place = next(tmp_path.rglob("ga/3/result.json"))
    result = json.loads(place.read_text()) | {"preset": "default", "settings": {"gone": 1}}
    place.write_text(json.dumps(result))
    with pytest.raises(InputError, match="cells of ga with the preset default"):
        record_plan(tmp_path, done)
