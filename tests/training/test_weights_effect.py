"""Trained weights: where values wait that the model does not hold just now."""

from __future__ import annotations

import pytest
import torch

from tests import tiny
from tfrnet.method import find_method
from tfrnet.training import weights_effect


@pytest.mark.parametrize("in_place", [True, False])
def test_states_that_wait_where_the_weights_are_do_not_change(monkeypatch, tokenizer, in_place):
    monkeypatch.setattr(weights_effect, "has_room_for_copies", lambda parameters: in_place)
    model = tiny.make_trained_model()
    original = {name: p.detach().clone() for name, p in model.named_parameters()}
    method = find_method("graddiff")
    net = method(model, tokenizer, tiny.examples(20), method.config_class(steps=2))
    first, second = tiny.requests(2)
    net.forget(first)
    state = net.snapshot()
    kept = {name: value.clone() for name, value in state.tensors().items()}
    net.forget(second)
    assert any(not torch.equal(net.state.tensors()[name], kept[name]) for name in kept)
    net.restore(state)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, kept[name])
        assert torch.equal(state.tensors()[name], kept[name])
    net.detach()
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, original[name])


def test_on_a_cpu_there_is_nothing_to_move():
    assert not weights_effect.has_room_for_copies(tiny.make_model().parameters())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("name", ["ga", "npo"])
def test_training_in_any_precision_leaves_the_models_own_values_alone(tokenizer, name, dtype):
    model = tiny.make_trained_model().to(dtype)
    original = {name: p.detach().clone() for name, p in model.named_parameters()}

    def is_original():
        return all(torch.equal(p, original[name]) for name, p in model.named_parameters())

    method = find_method(name)
    settings = {"steps": 2, "learning_rate": 0.01, "guard_examples": 8}
    strict = method.config_class(**settings, use_guard=True, guard_relative=0)
    net = method(model, tokenizer, tiny.examples(20), strict)
    first, second = tiny.requests(2)
    assert net.forget(first).outcome == "rejected"
    assert is_original()
    net.detach()
    net = method(model, tokenizer, tiny.examples(20), method.config_class(**settings))
    assert net.forget(first).accepted
    with net.untouched():
        assert is_original()
    assert not is_original()
    net.forget(second)
    net.detach()
    assert is_original()
