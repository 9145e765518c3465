"""Reference examples: a calibrated step makes answers as unlikely as those, not as estimated."""

from __future__ import annotations

import math

import pytest
import torch

from tests import tiny
from tests.methods.tfr.plain import PLAIN
from tfrnet import TFRConfig, TFRNet
from tfrnet.core.errors import InputError
from tfrnet.data.examples import Encoded, Example, encode_all
from tfrnet.data.requests import Request
from tfrnet.methods.npo.config import NPOConfig
from tfrnet.methods.npo.method import NPO
from tfrnet.methods.tfr.scoring import ScoreOptions
from tfrnet.methods.tfr.steps import reference as module
from tfrnet.methods.tfr.steps.levels import Form
from tfrnet.methods.tfr.steps.neighbours import prompt_states
from tfrnet.methods.tfr.steps.reference import Reference
from tfrnet.models.forward import evaluate_losses

RETAIN = tiny.examples(20, 100)
UNSEEN = tiny.examples(6, 3000)
# What every trained example says, so more certain than any answer.
KNOWN = [Example("Item 4 of the old", "box is")]
OPTIONS = ScoreOptions(batch_size=3)
CONFIG = TFRConfig.from_dict(PLAIN | {"guard_relative": 1, "retain_examples": 8, "steps": 6})


@pytest.fixture(scope="module")
def model():
    return tiny.make_trained_model()


@pytest.fixture
def encoded(tokenizer) -> list[Encoded]:
    return encode_all(UNSEEN, tokenizer, 64, "test")


def log_odds(losses: torch.Tensor) -> torch.Tensor:
    """Return the log-odds by their definition."""
    p = torch.exp(-losses.double())
    return torch.log(p / (1 - p))


def levels(model, encoded, forms, asked, quantile=0.5) -> list[float]:
    states = prompt_states(model, asked, OPTIONS)
    return Reference.of(model, encoded, OPTIONS).levels(model, states, forms, OPTIONS, quantile)


# Levels


@pytest.mark.parametrize("quantile", [0.0, 0.25, 0.5])
def test_the_level_of_words_is_a_quantile_of_the_references(model, encoded, quantile) -> None:
    (found,) = levels(model, encoded, [Form(())], encoded[:1], quantile)
    losses = evaluate_losses(model, encoded, 2).double()
    # Few examples lie between two, where odds are interpolated and not losses.
    expected = log_odds(losses).quantile(1 - quantile)
    assert found == pytest.approx(float(expected), abs=1e-4)
    if not quantile:
        assert found == pytest.approx(float(log_odds(losses.min())), abs=1e-4)


def test_the_nearest_references_count(model, encoded, monkeypatch) -> None:
    monkeypatch.setattr(module, "_COMPARED", 1)
    found = levels(model, encoded, [Form(())] * len(encoded), encoded)
    expected = log_odds(evaluate_losses(model, encoded, 2))
    assert found == pytest.approx(expected.tolist(), abs=1e-4)


def test_the_level_of_a_label_is_that_of_unseen_labels_not_chance(model, encoded) -> None:
    labels = [Encoded((*each.ids[: each.answer_start], 40 + i % 2), each.answer_start)
              for i, each in enumerate(encoded)]  # fmt: skip
    (found,) = levels(model, labels, [Form((40, 41))], labels[:1])
    odds = []
    for each in labels:
        with torch.no_grad():
            logits = model(torch.tensor([each.ids[:-1]])).logits[0, -1].double()
        own, other = each.ids[-1], 81 - each.ids[-1]
        odds.append(float(logits[own] - logits[other]))
    assert found == pytest.approx(float(torch.tensor(odds).quantile(0.5)), abs=1e-4)
    assert found != 0


def test_a_loss_that_is_not_finite_is_an_error(encoded) -> None:
    broken = tiny.make_model()
    with torch.no_grad():
        broken.lm_head.weight.fill_(math.nan)
    with pytest.raises(InputError, match="the loss on the reference data is not finite"):
        levels(broken, encoded, [Form(())], encoded[:1])


# Requests


def forgotten(tokenizer, reference, count=1, **changes):
    config = CONFIG if not changes else TFRConfig.from_dict(CONFIG.to_dict() | changes)
    net = TFRNet(
        *(tiny.make_trained_model(), tokenizer, RETAIN, config),
        reference=reference,
        batch_size=4,
    )
    outcomes = [net.forget(request) for request in tiny.requests(count)]
    odds = []
    for request in tiny.requests(count):
        odds += log_odds(net._losses(net.encode(request.examples, "test"))).tolist()
    net.detach()
    return outcomes, net, odds


def test_answers_end_at_the_level_of_what_was_never_seen(tokenizer, model, encoded) -> None:
    (outcome,), _, odds = forgotten(tokenizer, UNSEEN)
    (estimated,), _, _ = forgotten(tokenizer, ())
    assert outcome.accepted
    assert outcome.reason == "guard loss within tolerance"
    level = float(log_odds(evaluate_losses(model, encoded, 2)).quantile(1 - CONFIG.level_quantile))
    assert max(odds) <= level + 1e-3
    assert outcome.forget_loss_after != pytest.approx(estimated.forget_loss_after, rel=1e-3)


def test_where_the_model_knows_the_references_better_nothing_is_forgotten(tokenizer) -> None:
    (outcome,), net, _ = forgotten(tokenizer, KNOWN, level_quantile=0)
    assert outcome.accepted
    assert outcome.reason.startswith("nothing to do: the untouched model does not know this")
    assert bool((net.state.mask == 1).all())


def test_levels_are_the_untouched_models_also_later_in_a_stream(tokenizer, monkeypatch) -> None:
    found = []
    real = Reference.levels

    def kept(self, model, *rest):
        found.append(real(self, model, *rest))
        return found[-1]

    monkeypatch.setattr(Reference, "levels", kept)
    request = tiny.requests(1)[0]
    net = TFRNet(tiny.make_trained_model(), tokenizer, RETAIN, CONFIG, reference=UNSEEN)
    net.forget(request)
    mask = net.state.mask
    assert bool((mask < 1).any())
    again = net.forget(Request("again", request.examples))
    net.detach()
    assert found[0] == found[1]
    # Known once, and at its level by now.
    assert again.reason == "nothing to do: every example is at its level already"
    assert torch.equal(net.state.mask, mask)


@pytest.mark.parametrize(
    "config", [TFRConfig.preset(name) for name in ("deep", "paper", "fisher")], ids=lambda c: c.step
)
def test_a_step_without_levels_refuses_them(tokenizer, model, config) -> None:
    with pytest.raises(InputError, match="no effect here; they need step=calibrate"):
        TFRNet(model, tokenizer, RETAIN, config, reference=UNSEEN)


def test_a_method_without_levels_refuses_them(tokenizer, model) -> None:
    with pytest.raises(InputError, match="reference examples have no effect with this method"):
        NPO(model, tokenizer, RETAIN, NPOConfig(), reference=UNSEEN)


def test_data_that_is_used_otherwise_is_no_reference(tokenizer, model) -> None:
    with pytest.raises(InputError, match="reference data overlaps retain data: line 2 of"):
        TFRNet(model, tokenizer, RETAIN, CONFIG, reference=[UNSEEN[0], RETAIN[3]])
    with pytest.raises(InputError, match="reference data overlaps guard data"):
        TFRNet(model, tokenizer, RETAIN, CONFIG, guard=UNSEEN[:2], reference=UNSEEN)
    net = TFRNet(model, tokenizer, RETAIN, CONFIG, reference=UNSEEN)
    wanted = Request("seen", (Example(UNSEEN[1].prompt, UNSEEN[1].answer),))
    with pytest.raises(InputError, match="reference data overlaps request 'seen'"):
        net.forget(wanted)
    with pytest.raises(InputError, match="reference data overlaps retain data"):
        net.forget(tiny.requests(1)[0], retain=[*RETAIN, UNSEEN[0]])
    # Nothing was changed: neither the data nor the mask.
    assert net.retain == RETAIN
    assert bool((net.state.mask == 1).all())
    net.detach()
