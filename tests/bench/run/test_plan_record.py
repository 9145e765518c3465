"""Which plans may share the folder of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfrnet.core.errors import InputError
from tfrnet_bench.run.plan import BenchPlan
from tfrnet_bench.run.plan_record import record_plan
from tfrnet_bench.run_folder import read_plans


def plan(*experiments: str, **changes: str) -> BenchPlan:
    return BenchPlan(experiments=experiments, methods=("ga",), seeds=(3,), **changes)


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
