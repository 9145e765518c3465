"""The solved step on a small model: what it asks of the margins is what they do."""

from dataclasses import replace

import pytest
import torch

from tests import tiny
from tfrnet import TFRConfig, TFRNet
from tfrnet.models.forward import collate, evaluate_losses
from tfrnet.session import Session
from tfrnet.state.verify import verify
from tfrnet.tfr.odds import log_odds
from tfrnet.tfr.rivals import Rivals, answer_tokens
from tfrnet.tfr.scoring import ExampleGradients
from tfrnet.tfr.solve_update import cheapest

RETAIN, GUARD = tiny.examples(6), tiny.examples(5, offset=50)
CONFIG = TFRConfig(step="solve", budget=10_000, guard_relative=0.3)


def make_net(config=CONFIG, **options):
    model = tiny.make_trained_model()
    return TFRNet(model, tiny.make_tokenizer(), RETAIN, config, guard=GUARD, **options)


class Margins:
    """The weakest margins of a request, over rivals as they were when this was made."""

    def __init__(self, net, request):
        (encoded,) = net.prepare([request])
        self.model, self.batch = net.model, collate(encoded, torch.device("cpu"))
        self.rivals = Rivals(answer_tokens(net._retain_encoded))
        self.before = self()

    def __call__(self):
        with torch.no_grad():
            return self.rivals.weakest_margins(self.model, self.batch)


def test_a_small_step_lowers_every_margin_as_far_as_asked():
    """First order: halving what is asked for divides the error by about four."""
    (request,) = tiny.requests(1)
    errors = []
    for asked in (0.2, 0.1):
        config = replace(CONFIG, steps=1, step_margin=asked, forget_stiffness=1e4, use_guard=False)
        net = make_net(config)
        margins = Margins(net, request)
        net.forget(request)
        fallen = margins.before - margins()
        assert fallen.tolist() == pytest.approx([asked] * len(fallen), rel=0.25)
        errors.append(float((fallen - asked).abs().max()))
    assert errors[1] < 0.5 * errors[0]


def test_retain_examples_move_less_than_without_their_rows():
    (request,) = tiny.requests(1)

    def moved(**changes):
        net = make_net(replace(CONFIG, steps=1, step_margin=0.2, use_guard=False, **changes))
        encoded = net._retain_encoded
        before = log_odds(evaluate_losses(net.model, encoded, 8))
        net.forget(request)
        return float((log_odds(evaluate_losses(net.model, encoded, 8)) - before).norm())

    assert moved(retain_stiffness=1e4) < 0.5 * moved(retain_stiffness=0.0)


def test_steps_go_on_until_every_example_is_forgotten():
    (request,) = tiny.requests(1)
    shallow = replace(CONFIG, steps=30, step_margin=1.0, forget_margin=-1.0, deep_margin=100.0)
    net = make_net(replace(shallow, use_guard=False))
    margins = Margins(net, request)
    outcome = net.forget(request)
    assert float(margins().max()) <= -0.95
    assert 1 < outcome.attempts < 30


def test_what_is_cheap_goes_deeper():
    (request,) = tiny.requests(1)
    # Without retain rows: this model has too few channels to spare any for them.
    config = replace(CONFIG, steps=8, forget_margin=-1.0, deep_margin=-6.0, use_retain=False)

    def forget_loss(cheap_share):
        net = make_net(replace(config, guard_relative=100.0, cheap_share=cheap_share))
        return net.forget(request).forget_loss_after

    assert forget_loss(1.0) > 1.2 * forget_loss(0.0)


def test_anchors_hold_retain_examples_in_place():
    """Only one example is scored per request; the anchors stand for the others."""
    (request,) = tiny.requests(1)

    def moved(anchors):
        config = replace(CONFIG, steps=1, step_margin=0.3, use_guard=False, retain_examples=1)
        net = make_net(replace(config, anchor_examples=anchors, retain_stiffness=1e4))
        before = log_odds(evaluate_losses(net.model, net._retain_encoded, 8))
        net.forget(request)
        return float((log_odds(evaluate_losses(net.model, net._retain_encoded, 8)) - before).norm())

    assert moved(6) < 0.5 * moved(0)


def test_anchors_can_hold_every_token():
    """Of an answer held on average one token may gain what another loses."""
    (request,) = tiny.requests(1)

    def moved(by_token):
        config = replace(CONFIG, steps=1, step_margin=0.3, use_guard=False, retain_examples=1)
        config = replace(config, anchor_examples=2, anchor_tokens=by_token, retain_stiffness=1e5)
        net = make_net(config)
        held = [part for e in net._retain_encoded for part in e.by_token()]
        before = log_odds(evaluate_losses(net.model, held, 8))
        net.forget(request)
        change = (log_odds(evaluate_losses(net.model, held, 8)) - before).abs()
        return len(net._anchors), float(change.sum())

    rows, sideways = moved(False)
    assert rows == 2
    more_rows, held = moved(True)
    assert more_rows > 2
    assert held < sideways


def test_the_cheapest_examples_come_first():
    values = torch.tensor([3.0, 1.0, -5.0, 2.0])
    rows = torch.tensor([[3.0, 0.0], [1.0, 1.0], [1.0, 0.0], [0.0, 0.5]])
    cost = torch.tensor([1.0, 2.0])
    falls = torch.tensor([6.0, 4.0, 0.0, 5.0])
    # Ways to -3 are 6, 4, none, 5; a gradient's square is 9, 1.5, -, 0.125 by these costs: they
    # cost 4, 10.7, -, 200.
    found = ExampleGradients(rows, values)
    assert cheapest(falls, found, cost, -3.0, 1.0).tolist() == [6, 4, 0, 5]
    assert cheapest(falls, found, cost, -3.0, 0.6).tolist() == [6, 4, 0, 0]
    assert cheapest(falls, found, cost, -3.0, 0.1).tolist() == [6, 0, 0, 0]


def test_with_focus_some_are_forgotten_while_others_wait():
    (request,) = tiny.requests(1, size=6)
    config = replace(CONFIG, steps=1, step_margin=2.0, use_guard=False, retain_stiffness=0.0)

    def fallen(focus):
        net = make_net(replace(config, focus=focus))
        margins = Margins(net, request)
        net.forget(request)
        return margins.before - margins()

    # Two of six are asked for: these fall farther than when all six are, the dearest less.
    some, all_six = fallen(0.3), fallen(1.0)
    assert int((some > all_six + 0.1).sum()) == 2
    assert some[all_six.argmax()] < 0.5 * all_six.max()


def test_the_guard_examples_can_be_held_on_average():
    (request,) = tiny.requests(1)

    def rise(hold_guard):
        config = replace(CONFIG, steps=1, step_margin=0.1, use_guard=False, retain_stiffness=1e3)
        config = replace(config, anchor_examples=0, hold_guard=hold_guard)
        outcome = make_net(config).forget(request)
        return abs(outcome.guard_loss_after - outcome.guard_loss_before)

    assert rise(True) < 0.2 * rise(False)


def test_earlier_requests_are_kept_from_coming_back():
    first, other = tiny.requests(2)
    config = replace(CONFIG, steps=9, forget_margin=-1.0, deep_margin=100.0, use_guard=False)
    config = replace(config, retain_examples=2, anchor_examples=0, memory_stiffness=1e3)

    def moved_afterwards(**changes):
        net = make_net(replace(config, **changes))
        margins = Margins(net, first)
        net.forget(first)
        then = margins()
        assert float(then.max()) < -0.9
        # A step so small that gradients foresee it.
        net.config = replace(net.config, steps=1, step_margin=0.2)
        net.forget(other)
        return float((margins() - then).abs().mean())

    assert moved_afterwards(memory_rows=40) < 0.3 * moved_afterwards()
    without = moved_afterwards(use_history=False)
    assert moved_afterwards(memory_rows=40, use_history=False) == without


def test_what_was_not_forgotten_is_not_remembered():
    (request,) = tiny.requests(1)
    config = replace(CONFIG, steps=1, step_margin=0.01, use_guard=False, memory_rows=5)
    net = make_net(config)
    assert float(Margins(net, request).before.min()) > 0.01
    net.forget(request)
    assert not net.state.tensors()["forgotten"].any()


def test_what_is_remembered_stays_as_large_and_is_part_of_the_state(tmp_path):
    config = replace(CONFIG, memory_rows=5)
    requests = tiny.requests(3, size=3)
    net = make_net(config)
    sizes = set()
    for request in requests:
        net.forget(request)
        sizes.add(tuple(net.state.tensors()["forgotten"].shape))
    assert sizes == {(5, net.mask.index.total)}
    assert bool(net.state.forgotten.any())
    first = make_net(config)
    first.forget(requests[0])
    first.save(tmp_path / "state.safetensors")
    second = make_net(config)
    second.load(tmp_path / "state.safetensors")
    for request in requests[1:]:
        second.forget(request)
    assert second.state.digest() == net.state.digest()
    with Session(
        tiny.make_trained_model(), tiny.make_tokenizer(), tmp_path / "s", RETAIN, config=config
    ) as session:
        session.forget(requests[0])
    assert [check for check in verify(tmp_path / "s") if not check.passed] == []


def test_other_retain_data_brings_other_anchors():
    (request, second) = tiny.requests(2)
    net = make_net()
    net.forget(request)
    before = net._anchors
    net.forget(second, retain=tiny.examples(4, offset=90))
    assert len(net._anchors) == 4
    assert before is not None and len(before) == 6


def test_the_guard_shortens_a_step():
    (request,) = tiny.requests(1)
    net = make_net(replace(CONFIG, guard_relative=0.01))
    outcome = net.forget(request)
    assert outcome.accepted
    assert outcome.attempts > 1
    assert outcome.guard_loss_after <= 1.01 * outcome.guard_loss_before
    assert outcome.forget_loss_after > outcome.forget_loss_before


def test_a_guard_that_allows_nothing_rejects_and_restores():
    net = make_net(replace(CONFIG, guard_relative=0.0, backtracks=0, step_margin=20.0))
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
    assert "forget_margin" not in TFRConfig().effective()
    assert "forget_margin" in CONFIG.effective()
    assert "forget_margin" in TFRConfig().to_dict()
