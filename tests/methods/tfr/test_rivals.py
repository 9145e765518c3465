"""Margins of answers over their rivals, against logits taken by hand."""

import pytest
import torch

from tests import tiny
from tfrnet.methods.tfr.steps.margins import Rivals, answer_tokens
from tfrnet.models.forward import collate

EXAMPLES = tiny.examples(3)


@pytest.fixture
def model():
    return tiny.make_trained_model().double().eval()


def encoded():
    from tfrnet.data.examples import encode_all

    return encode_all(EXAMPLES, tiny.make_tokenizer(), 64, "examples")


def by_hand(model, example, allowed, count=1):
    """The margin of every answer token of one example over the best other allowed tokens."""
    with torch.no_grad():
        logits = model(torch.tensor([example.ids])).logits[0]
    margins = []
    for place in range(example.answer_start, len(example.ids)):
        row, own = logits[place - 1], example.ids[place]
        others = [float(row[t]) for t in (allowed or range(len(row))) if t != own]
        best = sorted(others, reverse=True)[:count]
        margins.append(float(row[own]) - sum(best) / len(best))
    return torch.tensor(margins, dtype=torch.float64)


@pytest.mark.parametrize("limited", [True, False])
@pytest.mark.parametrize("count", [1, 3, 10_000])
def test_margins_agree_with_logits_taken_one_by_one(model, limited, count):
    """On average over several rivals, or all there are; at the weakest token over the first."""
    examples = encoded()
    allowed = answer_tokens(examples) if limited else set()
    batch = collate(examples, torch.device("cpu"))
    rivals = Rivals(allowed, count)
    if limited and count > len(allowed):
        # Where an answer's own token is none of the allowed ones there would be one more.
        count = len(allowed) - 1
    tokens = [by_hand(model, example, allowed) for example in examples]
    several = [by_hand(model, example, allowed, count) for example in examples]
    with torch.no_grad():
        mean, weakest = rivals.mean_margins(model, batch), rivals.weakest_margins(model, batch)
    assert mean.tolist() == pytest.approx([float(t.mean()) for t in several])
    assert weakest.tolist() == pytest.approx([-float((-t).exp().mean().log()) for t in tokens])
    assert all(low <= float(t.mean()) + 1e-9 for low, t in zip(weakest, tokens, strict=True))


def test_weakest_margins_have_the_gradient_of_their_formula(model):
    examples = encoded()
    batch = collate(examples, torch.device("cpu"))
    rivals = Rivals(answer_tokens(examples))
    weight = model.get_output_embeddings().weight.requires_grad_()
    (found,) = torch.autograd.grad(rivals.weakest_margins(model, batch).sum(), weight)
    place = tuple(int(i) for i in (found.abs() == found.abs().max()).nonzero()[0])
    values = []
    for sign in (1, -1):
        with torch.no_grad():
            weight[place] += sign * 1e-6
            values.append(float(rivals.weakest_margins(model, batch).sum()))
            weight[place] -= sign * 1e-6
    assert float(found[place]) == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-5)


def test_rivals_stay_what_they_were_when_first_seen(model):
    examples = encoded()
    batch = collate(examples, torch.device("cpu"))
    rivals = Rivals(set())
    with torch.no_grad():
        before = rivals.mean_margins(model, batch)
        # Another token takes the lead everywhere; the margin over the first rival is as before.
        head = torch.nn.Linear(*reversed(model.get_output_embeddings().weight.shape)).double()
        head.weight.copy_(model.get_output_embeddings().weight)
        head.bias.zero_()
        free = next(
            t
            for t in range(head.bias.numel())
            if t not in answer_tokens(examples)
            and all(t not in known.flatten().tolist() for known in rivals._known.values())
        )
        head.bias[free] = 100.0
        model.set_output_embeddings(head)
        assert torch.allclose(rivals.mean_margins(model, batch), before)
        assert float(Rivals(set()).mean_margins(model, batch).max()) < -50


def test_a_single_retained_token_does_not_leave_an_answer_without_rival(model):
    examples = encoded()
    batch = collate(examples, torch.device("cpu"))
    with torch.no_grad():
        margins = Rivals({examples[0].ids[-1]}).mean_margins(model, batch)
    assert torch.isfinite(margins).all()
