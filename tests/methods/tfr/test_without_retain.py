"""The ablation `use_retain=False`: retain scores no longer guide which channels are suppressed."""

from dataclasses import replace

import pytest
import torch

from tests import tiny
from tfrnet import TFRConfig, TFRNet
from tfrnet.methods.tfr.presets import FISHER
from tfrnet.methods.tfr.scoring import ChannelScores
from tfrnet.methods.tfr.state import ChannelState
from tfrnet.methods.tfr.steps.common import score_risk
from tfrnet.methods.tfr.steps.fisher import fisher_direction, step_direction

RETAIN, GUARD = tiny.examples(6), tiny.examples(5, offset=50)
BASES = {
    "select": TFRConfig.paper(
        budget=12,
        max_sparsity=0.06,
        risk_margin=0.2,
        current_risk_ceiling=2.0,
        guard_relative=0.5,
    ),
    "fisher": TFRConfig.from_dict(FISHER | {"budget": 64}),
    # Short steps to a near margin: without retain rows the guard has to accept something.
    "solve": TFRConfig(step="solve", budget=64, step_margin=6, deep_margin=-8, guard_absolute=0),
}


def scores(seed, channels=20):
    magnitude, signed, gradient, square = torch.randn(
        4, channels, generator=torch.Generator().manual_seed(seed)
    )
    return ChannelScores(magnitude.abs(), signed, gradient, square.square(), 1.0, 1.0)


def forgotten(config):
    net = TFRNet(tiny.make_trained_model(), tiny.make_tokenizer(), RETAIN, config, guard=GUARD)
    return [net.forget(request) for request in tiny.requests(2)], net.state


def test_a_step_follows_the_forget_gradient_alone():
    forget, retain, fisher = scores(0), scores(1), scores(2).square
    direction = step_direction(forget, retain, fisher, TFRConfig(use_retain=False, budget=4))
    rise = (-forget.gradient).clamp(min=0)
    largest = rise.argsort(descending=True)[:4]
    expected = torch.zeros(20)
    expected[largest] = rise[largest] / rise.max()
    torch.testing.assert_close(direction, expected)
    assert direction.max() == 1


def test_a_step_weighs_retain_and_fisher_unless_told_otherwise():
    forget, retain, fisher = scores(0), scores(1), scores(2).square
    found = step_direction(forget, retain, fisher, TFRConfig(budget=4))
    assert torch.equal(found, fisher_direction(forget.gradient, retain.gradient, fisher, 0.3, 4))


def test_the_risk_is_that_of_a_retain_weight_of_zero():
    def evidence(**more):
        state = ChannelState.initial(20, with_fisher=False)
        return score_risk(state, scores(0), scores(1), [12, 8], TFRConfig.paper(**more))

    without, weightless = evidence(use_retain=False), evidence(retain_weight=0)
    assert torch.equal(without.chi, weightless.chi)
    assert not torch.equal(without.chi, evidence().chi)
    # Recovery goes on asking what a channel is worth to the retain data.
    assert torch.equal(without.retain_standardised, evidence().retain_standardised)
    assert bool(without.retain_standardised.any())


@pytest.mark.parametrize("step", BASES)
def test_other_channels_are_chosen_and_the_guard_holds(step):
    without = replace(BASES[step], use_retain=False)
    _, guided = forgotten(BASES[step])
    outcomes, blind = forgotten(without)
    assert not torch.equal(guided.mask < 1, blind.mask < 1)
    for outcome in outcomes:
        assert outcome.accepted
        assert outcome.selected > 0
        limit = (1 + without.guard_relative) * outcome.guard_loss_before
        assert outcome.guard_loss_after <= limit
    (first, _), _ = forgotten(replace(without, guard_relative=0.0, backtracks=0))
    assert not first.accepted


def test_settings_of_before_the_switch_are_read_as_guided():
    known = TFRConfig().to_dict()
    del known["use_retain"]
    assert TFRConfig.from_dict(known) == TFRConfig()
    assert TFRConfig().use_retain and TFRConfig.paper().use_retain
