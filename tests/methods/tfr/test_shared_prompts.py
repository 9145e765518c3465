"""Other answers to a request's prompts: computed from one pass over each prompt."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests import tiny
from tfrnet import TFRConfig, TFRNet
from tfrnet.data.examples import Encoded
from tfrnet.data.requests import Request
from tfrnet.methods.tfr.steps import calibration
from tfrnet.methods.tfr.trial_model import TrialModel
from tfrnet.models.forward import evaluate_losses
from tfrnet.unlearner import Unlearner

NAMED = ("green", "a red house", "blue", "pale", "dark red", "no 7", "black", "grey 12")


@pytest.mark.parametrize(("batch_size", "is_shared"), [(8, False), (None, True)])
def test_a_batch_size_given_by_hand_is_that_of_every_pass(batch_size, is_shared, monkeypatch):
    """So that states begun with it go on bit for bit."""
    rivals = [Encoded((*range(3, 43), answer), 40) for answer in range(3, 15)]
    net = TFRNet(
        tiny.make_trained_model(), tiny.make_tokenizer(), tiny.examples(20), batch_size=batch_size
    )
    expected, forward, tokens = evaluate_losses(net.model, rivals, 8), net.model.forward, []
    monkeypatch.setattr(
        net.model,
        "forward",
        lambda **inputs: tokens.append(inputs["input_ids"].numel()) or forward(**inputs),
    )
    found = net._losses(rivals)
    assert sum(tokens) == 40 * (1 if is_shared else len(rivals))
    assert is_shared or torch.equal(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [(), NAMED], ids=["rivals", "wrong answers"])
def test_losses_in_a_request_are_those_of_whole_passes(wrong, monkeypatch):
    """At every mask on the way. Where it ends cannot be compared: tiny models amplify rounding."""
    examples = [replace(each, wrong_answers=wrong) for each in tiny.examples(4)]
    net = TFRNet(
        tiny.make_trained_model(),
        tiny.make_tokenizer(),
        tiny.examples(20, 100),
        TFRConfig(steps=3, least_reached=0, siblings=0, untouched_siblings=False),
        guard=tiny.examples(6, 60),
    )
    tokens, forward = [], net.model.forward
    monkeypatch.setattr(
        net.model,
        "forward",
        lambda **inputs: tokens.append(inputs["input_ids"].numel()) or forward(**inputs),
    )
    places = []

    def check(place, rivals):
        tokens.clear()
        found, took = net._losses(rivals), sum(tokens)
        tokens.clear()
        torch.testing.assert_close(found, Unlearner._losses(net, rivals), rtol=1e-4, atol=1e-5)
        assert took < sum(tokens) * 2 / 3
        places.append((place, bool((net.mask.values != 1).any())))

    levels, rival_losses = calibration.estimated_levels, TrialModel.rival_losses

    def spy_levels(forms, rivals, *others):
        check("levels", [rival for own in rivals for rival in own])
        return levels(forms, rivals, *others)

    def spy_losses(self, mask, rivals):
        found = rival_losses(self, mask, rivals)
        check("step", rivals)
        return found

    monkeypatch.setattr(calibration, "estimated_levels", spy_levels)
    monkeypatch.setattr(TrialModel, "rival_losses", spy_losses)
    net.forget(Request("a", examples))
    assert places[0] == ("levels", False)
    assert set(places[1:]) == {("step", True)}
