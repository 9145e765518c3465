"""The map of the paper's rule: tolerances that run together end as they would alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks.paper_map import cells_of, compare, heldout_change, label_of, run_together
from tests import tiny
from tfrnet.methods.tfr.config import TFRConfig
from tfrnet.methods.tfr.model import TFRNet

# Each of them decides otherwise on some request.
GUARDS = (0.0, 0.0015, 1.0)
REQUESTS = tiny.requests(5)


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


def measured(right: list[list[bool]], heldout: dict[str, float]) -> dict:
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
    path.write_text('{"model": "a", "error": "no memory"}\n{"model": "b"}\n')
    assert cells_of(path) == [{"model": "b"}]


def test_results_name_a_model_without_its_folder():
    assert [label_of(name) for name in ("here/gemma3-tasks", "smollm2-135m")] == [
        "gemma3-tasks",
        "smollm2-135m",
    ]
