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
