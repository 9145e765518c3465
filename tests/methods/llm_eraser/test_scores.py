"""LLM-Eraser's scores and counts against numbers worked out by hand."""

from __future__ import annotations

import pytest
import torch

from tfrnet.methods.llm_eraser.scores import (
    CHANNEL_DIM,
    allowance,
    lowest,
    middle_layers,
    salience,
    selective_scores,
)

# Hidden size 2, three channels.
WEIGHTS = {
    "gate_proj": [[1, -2], [0.5, 0.5], [-1, 1]],
    "up_proj": [[0.2, 0.1], [1, -1], [0.3, 0.3]],
    "down_proj": [[1, 0, -1], [0.5, 2, 1]],
}
RETAIN = {
    "gate_proj": [[0.1, 0.2], [0.3, -0.1], [0, 0.1]],
    "up_proj": [[0.5, -0.5], [0.1, 0.1], [0.2, 0]],
    "down_proj": [[0.1, 0.2, 0.3], [-0.2, 0.1, 0]],
}
FORGET = {
    "gate_proj": [[1, 1], [0.1, 0.1], [0.5, -0.5]],
    "up_proj": [[1, 0], [0, 0.1], [-1, 1]],
    "down_proj": [[2, 0, 0.1], [1, 0.1, 0]],
}
ALL = torch.ones(3, dtype=torch.bool)


def importance(gradients: dict) -> torch.Tensor:
    return sum(
        salience(torch.tensor(WEIGHTS[part]), torch.tensor(gradients[part]), dim)
        for part, dim in CHANNEL_DIM.items()
    )


def test_the_test_vector() -> None:
    retain, forget = importance(RETAIN), importance(FORGET)
    scores = selective_scores(retain, forget, 0.2)
    assert retain.tolist() == pytest.approx([0.85, 0.60, 0.46], abs=1e-6)
    assert forget.tolist() == pytest.approx([5.70, 0.40, 1.70], abs=1e-6)
    assert scores.tolist() == pytest.approx([-0.29, 0.52, 0.12], abs=1e-6)
    assert lowest(scores, ALL, 3).tolist() == [0, 2, 1]
    assert lowest(retain, ALL, 3).tolist() == [2, 1, 0]


def test_tiny_half_precision_products_are_not_lost() -> None:
    # Terms of 1e-8, which float16 rounds to 0.
    weight = torch.full((1, 4096), 1e-3, dtype=torch.float16)
    gradient = torch.full((1, 4096), 1e-5, dtype=torch.float16)
    assert float(salience(weight, gradient, 0)) == pytest.approx(4096e-8, rel=1e-2)


def test_only_candidates_are_chosen_and_of_equals_the_earlier() -> None:
    scores = torch.tensor([0.0, -1.0, 3.0, 0.0, 0.0])
    candidates = torch.tensor([True, False, True, True, True])
    assert lowest(scores, candidates, 2).tolist() == [0, 3]
    assert lowest(scores, candidates, 9).tolist() == [0, 3, 4, 2]
    assert lowest(scores, candidates, 0).tolist() == []


@pytest.mark.parametrize(
    ("total", "pruned", "budget", "share", "expected"),
    [
        (352256, 0, 128, 0.04, 128),
        (100, 0, 50, 0.29, 29),  # 0.29 * 100 is a little less in floating point
        (100, 3, 2, 0.04, 1),
        (100, 4, 2, 0.04, 0),
        (100, 9, 2, 0.04, 0),  # a cap that was larger once
        (100, 0, 2, 0.0, 0),
    ],
)
def test_the_allowance_is_the_budget_up_to_the_cap(total, pruned, budget, share, expected) -> None:
    assert allowance(total, pruned, budget, share) == expected


def test_the_first_four_and_the_last_two_layers_are_spared_where_any_are_left() -> None:
    assert middle_layers(32) == tuple(range(4, 30))
    assert middle_layers(7) == (4,)
    assert middle_layers(6) == (0, 1, 2, 3, 4, 5)
    assert middle_layers(3) == (0, 1, 2)
