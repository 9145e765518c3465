"""The solved step on a small model: what it asks of the log-odds is what they do."""

from dataclasses import replace

import pytest
import torch

from tests import tiny
from tfrnet import TFRConfig, TFRNet
from tfrnet.models.forward import evaluate_losses
from tfrnet.tfr.odds import log_odds

RETAIN, GUARD = tiny.examples(6), tiny.examples(5, offset=50)
CONFIG = TFRConfig(step="solve", budget=10_000, guard_relative=0.3)


def make_net(config=CONFIG, **options):
    model = tiny.make_trained_model()
    return TFRNet(model, tiny.make_tokenizer(), RETAIN, config, guard=GUARD, **options)


def odds_of(net, request):
    (encoded,) = net.prepare([request])
    return log_odds(evaluate_losses(net.model, encoded, 8))


def test_a_small_step_lowers_every_log_odds_as_far_as_asked():
    """First order: halving what is asked for divides the error by about four."""
    (request,) = tiny.requests(1)
    errors = []
    for asked in (0.2, 0.1):
        config = replace(CONFIG, steps=1, step_odds=asked, forget_stiffness=1e4, use_guard=False)
        net = make_net(config)
        before = odds_of(net, request)
        net.forget(request)
        fallen = before - odds_of(net, request)
        assert fallen.tolist() == pytest.approx([asked] * len(fallen), rel=0.25)
        errors.append(float((fallen - asked).abs().max()))
    assert errors[1] < 0.5 * errors[0]


def test_retain_examples_move_less_than_without_their_rows():
    (request,) = tiny.requests(1)

    def moved(**changes):
        net = make_net(replace(CONFIG, steps=1, step_odds=0.2, use_guard=False, **changes))
        encoded = net._retain_encoded
        before = log_odds(evaluate_losses(net.model, encoded, 8))
        net.forget(request)
        return float((log_odds(evaluate_losses(net.model, encoded, 8)) - before).norm())

    assert moved(retain_stiffness=1e4) < 0.5 * moved(retain_stiffness=0.0)


def test_steps_go_on_until_every_example_is_at_the_target():
    (request,) = tiny.requests(1)
    net = make_net(replace(CONFIG, steps=30, step_odds=0.5, forget_odds=-1.0, use_guard=False))
    outcome = net.forget(request)
    assert float(odds_of(net, request).max()) <= -0.95
    assert 1 < outcome.attempts < 30
    again = net.forget(replace(request, id="the same again"))
    assert again.accepted and again.attempts <= 2


def test_the_guard_shortens_a_step():
    (request,) = tiny.requests(1)
    net = make_net(replace(CONFIG, guard_relative=0.01))
    outcome = net.forget(request)
    assert outcome.accepted
    assert outcome.attempts > 1
    assert outcome.guard_loss_after <= 1.01 * outcome.guard_loss_before
    assert outcome.forget_loss_after > outcome.forget_loss_before


def test_a_guard_that_allows_nothing_rejects_and_restores():
    net = make_net(replace(CONFIG, guard_relative=0.0, backtracks=0, step_odds=5.0))
    before = net.state.digest()
    (request,) = tiny.requests(1)
    outcome = net.forget(request)
    assert not outcome.accepted
    assert net.state.digest() == before
    assert torch.equal(net.mask.values, torch.ones_like(net.mask.values))


def test_at_most_budget_channels_move():
    (request,) = tiny.requests(1)
    net = make_net(replace(CONFIG, budget=7, steps=1, use_guard=False))
    outcome = net.forget(request)
    assert 0 < outcome.selected <= 7


def test_recovery_raises_suppressed_channels_and_can_be_switched_off():
    def recovered(**changes):
        net = make_net(replace(CONFIG, **changes))
        return [net.forget(request).recovered for request in tiny.requests(3)]

    assert recovered()[0] == 0  # nothing was suppressed before the first request
    assert sum(recovered()) > 0
    assert sum(recovered(use_recovery=False)) == 0


def test_a_state_that_was_put_down_and_taken_up_again_goes_on_the_same(tmp_path):
    requests = tiny.requests(3)
    whole = make_net()
    for request in requests:
        whole.forget(request)
    first = make_net()
    first.forget(requests[0])
    first.save(tmp_path / "state.safetensors")
    second = make_net()
    second.load(tmp_path / "state.safetensors")
    for request in requests[1:]:
        second.forget(request)
    assert second.state.digest() == whole.state.digest()


def test_settings_of_another_step_are_not_among_those_that_count():
    assert "forget_odds" not in TFRConfig().effective()
    assert "forget_odds" in CONFIG.effective()
    assert "forget_odds" in TFRConfig().to_dict()
