"""Whole requests against the method written a second time (reference.py)."""

import copy
import weakref

import numpy as np
import pytest
import torch

from tests import tiny
from tests.methods.tfr.reference import Reference
from tfrnet import TFRConfig, TFRNet
from tfrnet.core.errors import InputError
from tfrnet.methods.tfr.presets import DEEP, FISHER

RETAIN, GUARD = tiny.examples(6), tiny.examples(5, offset=50)
BASE = {"budget": 12, "max_sparsity": 0.06, "risk_margin": 0.2, "current_risk_ceiling": 2.0}


def make_net(config, **options):
    model = tiny.make_trained_model()
    return TFRNet(model, tiny.make_tokenizer(), RETAIN, config, guard=GUARD, **options)


VARIANTS = {
    "as it is": {},
    "half strength": {"suppress_strength": 0.5},
    "no guard": {"use_guard": False},
    "no recovery": {"use_guard": False, "use_recovery": False},
    "no history": {"use_guard": False, "use_history": False, "history_risk_ceiling": 0.05},
    "some pass": {"guard_relative": 0.11},
    "nothing passes": {"guard_relative": 0.0, "guard_absolute": 0.0},
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ("as it is", "some pass") else pytest.mark.slow)
        for name in VARIANTS
    ],
)
def test_six_requests_agree_with_the_reference(name):
    config = TFRConfig.paper(**(BASE | VARIANTS[name]))
    net = make_net(config)
    names = [projection.name for projection in net.mask.index]
    reference = Reference(copy.deepcopy(net.model), net.tokenizer, names, **config.to_dict())
    for request in tiny.requests(6):
        outcome = net.forget(request)
        accepted, chosen, pool, recovered, before, after = reference.request(
            request.examples, RETAIN, GUARD
        )
        assert outcome.accepted == accepted
        assert outcome.selected == len(chosen)
        assert (outcome.recovery_pool, outcome.recovered) == (len(pool), len(recovered))
        assert outcome.guard_loss_before == pytest.approx(before, rel=1e-5)
        assert outcome.guard_loss_after == pytest.approx(after, rel=1e-5)
        for tensor_name, tensor in net.state.tensors().items():
            expected = reference.state[tensor_name]
            np.testing.assert_allclose(
                tensor.double().numpy(), expected, rtol=2e-3, atol=2e-4, err_msg=tensor_name
            )


@pytest.mark.slow
def test_the_variants_do_what_their_names_say():
    """Otherwise the comparison above would compare nothing."""
    seen = {}
    for name, change in VARIANTS.items():
        net = make_net(TFRConfig.paper(**(BASE | change)))
        seen[name] = [net.forget(request) for request in tiny.requests(6)]
    assert sum(o.recovered for o in seen["no guard"]) > 0
    assert sum(o.recovered for o in seen["no recovery"]) == 0
    assert any(o.recovery_pool for o in seen["no recovery"])
    recovered = [sum(o.recovered for o in seen[name]) for name in ("no history", "no guard")]
    assert recovered[0] != recovered[1]
    assert any(o.accepted for o in seen["no guard"])
    assert 0 < sum(o.accepted for o in seen["some pass"]) < 6
    assert not any(o.accepted for o in seen["nothing passes"])


def snapshot(net):
    return {name: tensor.clone() for name, tensor in net.state.tensors().items()}


def test_a_rejected_request_leaves_every_tensor_bit_identical():
    net = make_net(TFRConfig.paper(**BASE, use_guard=False))
    for request in tiny.requests(2):
        net.forget(request)
    before, logits = snapshot(net), net.model(torch.tensor([[5, 6, 7]])).logits
    strict = make_net(TFRConfig.paper(**BASE, guard_relative=0.0))
    strict.restore(net.state)
    outcome = strict.forget(tiny.requests(3)[2])
    assert not outcome.accepted
    assert all(torch.equal(before[name], t) for name, t in strict.state.tensors().items())
    assert torch.equal(strict.mask.values, before["mask"])
    assert torch.equal(strict.model(torch.tensor([[5, 6, 7]])).logits, logits)


def test_sparsity_cap_stops_suppression():
    config = TFRConfig.paper(**(BASE | {"use_guard": False, "use_recovery": False}))
    net = make_net(config)
    outcomes = [net.forget(request) for request in tiny.requests(6)]
    cap = int(0.06 * net.mask.index.total)
    assert outcomes[-1].dormant == cap
    assert outcomes[-1].selected == 0
    assert outcomes[-1].capacity == pytest.approx(1 - cap / net.mask.index.total)


# A tiny model has no room to hold what is near: its guard rises more than the default allows, and
# a second request would not reach its level.
@pytest.mark.parametrize(
    ("changes", "count"), [(DEEP, 3), ({"guard_relative": 1}, 1)], ids=["deep", "default"]
)
def test_the_forget_loss_rises_and_the_guard_is_kept(changes, count):
    config = TFRConfig.from_dict(changes)
    net = make_net(config)
    for request in tiny.requests(count):
        outcome = net.forget(request)
        assert outcome.accepted
        assert outcome.forget_loss_after > outcome.forget_loss_before
        limit = (1 + config.guard_relative) * outcome.guard_loss_before
        assert outcome.guard_loss_after <= limit


def test_backtracking_accepts_what_the_full_step_could_not():
    strict = BASE | {"guard_relative": 0.01}
    plain = make_net(TFRConfig.paper(**strict)).forget(tiny.requests(1)[0])
    retried = make_net(TFRConfig.paper(**strict, backtracks=6)).forget(tiny.requests(1)[0])
    assert not plain.accepted
    assert retried.accepted
    assert retried.attempts > 1
    assert 0 < retried.selected < 12


def test_signed_scores_choose_channels_that_raise_the_forget_loss():
    """Suppressing the channels chosen by sign raises the loss more than those chosen without."""
    rises = {}
    for signed in (False, True):
        config = TFRConfig.paper(
            **BASE, use_guard=False, retain_weight=0, signed_scores=signed, suppress_strength=0.2
        )
        outcome = make_net(config).forget(tiny.requests(1)[0])
        rises[signed] = outcome.forget_loss_after - outcome.forget_loss_before
    assert rises[True] > rises[False]
    assert rises[True] > 0


def test_forgetting_stops_when_every_example_is_forgotten():
    net = make_net(TFRConfig.from_dict(FISHER | {"forget_ceiling": 0.5}))
    unknown = tiny.Request("never learnt", (tiny.Example("Nobody has ever seen", "a zebra here"),))
    outcome = net.forget(unknown)
    assert outcome.forget_loss_before > 0.5
    assert outcome.accepted
    assert outcome.selected == 0
    assert outcome.attempts == 0
    assert "nothing to do" in outcome.reason


def test_a_refused_fisher_step_is_recorded_as_the_mask_that_was_refused():
    changes = {"guard_relative": 0.0, "step_guard": 0.0, "backtracks": 1}
    net = make_net(TFRConfig.from_dict(FISHER | changes))
    outcome = net.forget(tiny.requests(1)[0])
    assert not outcome.accepted
    assert outcome.selected > 0
    assert outcome.forget_loss_after != outcome.forget_loss_before
    assert outcome.suppressed_now == 0


def test_examples_longer_than_the_models_context_are_cut_to_it():
    long = tiny.Example("very " * 400, "red")
    net = TFRNet(
        tiny.make_model("gpt2"), tiny.make_tokenizer(), [*RETAIN, long], TFRConfig(max_length=500)
    )
    net.forget(tiny.requests(1)[0])
    assert max(len(encoded.ids) for encoded in net._retain_encoded) == 128


def test_the_same_seed_gives_the_same_state_and_another_seed_another():
    config = TFRConfig.from_dict(DEEP | {"retain_examples": 3})
    digests = []
    for seed in (0, 0, 1):
        net = make_net(config, seed=seed)
        net.forget(tiny.requests(1)[0])
        digests.append(net.state.digest())
    assert digests[0] == digests[1] != digests[2]


def test_retain_sample_is_new_for_each_request():
    net = make_net(TFRConfig(retain_examples=3))
    first = net._retain_sample(2)
    net.requests_seen = 1
    assert net._retain_sample(2) != first


def test_batch_size_changes_nothing_but_rounding():
    masks = []
    for batch_size in (1, 8):
        net = make_net(TFRConfig.paper(**BASE, use_guard=False), batch_size=batch_size)
        net.forget(tiny.requests(1)[0])
        masks.append(net.state.mask)
    assert torch.equal(*masks)


def test_an_interrupted_request_leaves_no_trace():
    net = make_net(TFRConfig())
    before, stages = snapshot(net), []

    def interrupt_after_a_tentative_mask(stage):
        stages.append(stage)
        if sum(said.endswith("checking the guard") for said in stages) == 3:
            assert not torch.equal(net.mask.values, before["mask"])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        net.forget(tiny.requests(1)[0], report=interrupt_after_a_tentative_mask)
    assert all(torch.equal(before[name], t) for name, t in net.state.tensors().items())
    assert torch.equal(net.mask.values, before["mask"])


def test_a_request_that_fills_the_memory_leaves_no_trace(monkeypatch):
    """The error on its way out holds what a pass had: until it lets go a mask finds no room."""
    net = make_net(TFRConfig())
    requests = tiny.requests(2)
    net.forget(requests[0])
    before = net.state.mask.clone()
    show, held = net.effect.show, []

    def fill(*arguments):
        everything = torch.zeros(3)
        held.append(weakref.ref(everything))
        net.mask.set(torch.zeros_like(before))
        raise torch.OutOfMemoryError("no room for rows")

    def shown_where_there_is_room(state):
        if held[-1]() is not None:
            raise torch.OutOfMemoryError("no room for a mask")
        show(state)

    monkeypatch.setattr(net, "_propose", fill)
    monkeypatch.setattr(net.effect, "show", shown_where_there_is_room)
    with pytest.raises(InputError, match="does not fit into the device's memory; a new state"):
        net.forget(requests[1])
    assert torch.equal(net.mask.values, before)


def test_overlap_and_missing_retain_data_are_refused():
    net = make_net(TFRConfig())
    with pytest.raises(InputError, match="overlaps request"):
        net.forget(tiny.Request("r", (RETAIN[2],)))
    with pytest.raises(InputError, match="guard data overlaps"):
        net.forget(tiny.Request("r", (GUARD[0],)))
    with pytest.raises(InputError, match="retain data is needed"):
        TFRNet(tiny.make_model(), tiny.make_tokenizer(), [], TFRConfig())


def test_a_loss_that_is_not_finite_is_an_error_and_changes_nothing():
    net = make_net(TFRConfig())
    with torch.no_grad():
        net.model.model.layers[1].mlp.down_proj.weight[0, 0] = float("nan")
    with pytest.raises(InputError, match="nothing was changed"):
        net.forget(tiny.requests(1)[0])
    assert net.requests_seen == 0
    assert bool((net.state.mask == 1).all())
