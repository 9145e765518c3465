import math

import pytest
import torch

from tfrnet.methods.tfr.steps.margins import log_odds, log_odds_gradients


@pytest.mark.parametrize("probability", [0.001, 0.25, 0.5, 0.9, 0.9999])
def test_log_odds_are_those_of_the_probability(probability):
    losses = torch.tensor([-math.log(probability)], dtype=torch.float64)
    assert log_odds(losses).item() == pytest.approx(math.log(probability / (1 - probability)))


def test_gradients_agree_with_finite_differences():
    """The loss is some function of two channels; its gradient is turned into that of log-odds."""

    def loss(mask):
        return (0.3 * mask[0] ** 2 - 0.7 * mask[1] + 1.0).exp()

    mask = torch.tensor([0.4, 0.9], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(loss(mask), mask)
    found = log_odds_gradients(gradient.unsqueeze(0), loss(mask).detach().unsqueeze(0))[0]
    for channel in range(2):
        step = torch.zeros(2, dtype=torch.float64)
        step[channel] = 1e-6
        up, down = (log_odds(loss(mask.detach() + sign * step)) for sign in (1, -1))
        assert found[channel].item() == pytest.approx((up - down).item() / 2e-6, rel=1e-7)


def test_a_loss_of_zero_is_a_large_finite_margin():
    odds = log_odds(torch.zeros(1))
    assert 10 < odds.item() < 20
    assert torch.isfinite(log_odds_gradients(torch.ones(1, 3), torch.zeros(1))).all()
