"""What kept examples are asked for, against odds worked out by hand."""

import math

import pytest
import torch

from tfrnet.methods.tfr.scoring import ExampleGradients
from tfrnet.methods.tfr.steps.constraints import RetainConstraints, held_rows
from tfrnet.methods.tfr.steps.margins import log_odds

# Probabilities 0.5 and 0.8: odds of 1 and 4, so log-odds of 0 and log 4.
LOSSES = torch.tensor([math.log(2), -math.log(0.8)], dtype=torch.float64)
GRADIENTS = torch.tensor([[1.0, -2.0, 0.0], [0.2, 0.0, 0.4]], dtype=torch.float64)


def watched(sharpness=0.0, stiffness=6.0):
    return RetainConstraints(ExampleGradients(GRADIENTS, LOSSES), sharpness, stiffness)


def test_rows_are_gradients_of_log_odds():
    """d log(p / (1 - p)) = -dL / (1 - p): minus twice and minus five times the loss's gradient."""
    rows = watched().each(LOSSES)
    expected = [[-2.0, 4.0, 0.0], [-1.0, 0.0, -2.0]]
    assert rows.gradients.tolist() == [pytest.approx(row) for row in expected]
    assert rows.falls.tolist() == [0, 0]
    assert rows.stiffness == 3.0  # 6, shared out between two


def test_log_odds_of_answers_that_cannot_be():
    """In float32 exp(89) is infinite; the odds of such an answer are finite all the same."""
    losses = torch.tensor([1.0, 79.0, 80.0, 81.0, 89.0, 1000.0])
    expected = [-math.log(math.expm1(loss)) for loss in losses[:4].tolist()]
    assert log_odds(losses).tolist() == pytest.approx([*expected, -89.0, -1000.0], rel=1e-7)


def test_what_was_lost_is_asked_back():
    # Now at probabilities 0.2 and 0.8: the first has lost log 4 of its log-odds.
    now = torch.tensor([math.log(5), LOSSES[1]])
    assert watched().each(now).falls.tolist() == pytest.approx([-math.log(4), 0])
    # With sharpness 1 its row and what it has lost count half, since 1 - p was a half.
    sharp = watched(sharpness=1.0).each(now)
    assert sharp.falls.tolist() == pytest.approx([-math.log(4) / 2, 0])
    assert sharp.gradients[0].tolist() == pytest.approx([-1.0, 2.0, 0.0])


def test_the_sum_of_losses_is_asked_to_fall_by_as_much_as_it_rose():
    together = watched().together(LOSSES + torch.tensor([0.3, -0.1]))
    assert together.gradients.tolist() == [pytest.approx([1.2, -2.0, 0.4])]
    assert together.falls.tolist() == pytest.approx([0.2])
    assert together.stiffness == 6.0


def test_mean_square_is_that_of_the_rows():
    expected = [(4 + 1) / 2, 16 / 2, 4 / 2]
    assert watched().mean_square().tolist() == pytest.approx(expected)


def test_nothing_is_held_where_there_is_nothing():
    assert held_rows(torch.empty(0, 3), 1.0) == []
    (rows,) = held_rows(torch.ones(2, 3), 4.0)
    assert rows.falls.tolist() == [0, 0]
