"""What the model writes itself, against decoding token by token."""

from __future__ import annotations

import math

import pytest
import torch

from tests import tiny
from tests.methods.tfr.plain import PLAIN
from tfrnet import TFRConfig, TFRNet
from tfrnet.data.examples import Encoded, Example, encode_all
from tfrnet.data.requests import Request
from tfrnet.methods.tfr.scoring import ExampleGradients, ScoreOptions
from tfrnet.methods.tfr.steps.calibration import Calibration, Untouched
from tfrnet.methods.tfr.steps.constraints import RetainConstraints
from tfrnet.methods.tfr.steps.levels import AnswerOdds, Form, with_rivals
from tfrnet.methods.tfr.steps.written import (
    Beginning,
    Writer,
    answers_in,
    least_sure,
    mentions,
    says,
    shared,
)

RETAIN = tiny.examples(20, 100)
WRITTEN = {"siblings": 6, "hold_written": 3, "request_rivals": True}


@pytest.fixture(scope="module")
def model():
    return tiny.make_trained_model()


@pytest.fixture(scope="module")
def forget(tokenizer) -> list[Encoded]:
    return encode_all(tiny.requests(1)[0].examples, tokenizer, 64, "forget")


def next_logits(model, ids) -> torch.Tensor:
    """The logits of the next token, in float64, of one text without padding."""
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0, -1].double()


def greedily(model, ids, size) -> tuple[int, ...]:
    ids = tuple(ids)
    for _ in range(size):
        token = int(next_logits(model, ids).argmax())
        if token == model.config.eos_token_id:
            break
        ids += (token,)
    return ids


# By hand


def test_the_row_of_the_widest_choice_is_the_least_sure() -> None:
    even, sure, two = [0.0, 0, 0, 0], [9.0, 0, 0, 0], [5.0, 5, 0, 0]
    assert int(least_sure(torch.tensor([sure, even, two]))) == 1
    assert int(least_sure(torch.tensor([sure, two]))) == 1


def test_beginnings_are_counted_and_the_longest_rest_is_written() -> None:
    found = shared(
        [Beginning((1, 2), (7, 8), 3), Beginning((4,), (7,), 1), Beginning((1, 2), (7, 8), 5)]
    )
    assert found == [Beginning((1, 2), (7, 8), 5, 2), Beginning((4,), (7,), 1, 1)]


def test_an_answer_is_found_anywhere_in_a_text() -> None:
    assert mentions((1, 2, 3), [(2, 3)])
    assert mentions((1, 2, 3), [(9,), (1,)])
    assert not mentions((1, 2, 3), [(1, 3), (3, 4), (1, 2, 3, 4)])


def test_an_answer_is_found_in_words_whatever_its_tokens_are() -> None:
    answers = ["Lisbon", "Rio (de Janeiro)"]
    assert says('It is called "Lisbon".', answers)
    assert says("Rio (de Janeiro)", answers)
    assert not says("Lisbonne", answers)
    assert not says("Paris", ["", "London"])


def test_siblings_are_held_where_they_are_and_retain_examples_given_back() -> None:
    known = Calibration([Encoded((1, 2), 1)], torch.tensor([0.2]), [], AnswerOdds({}), False)
    both = known.with_siblings([Encoded((3, 4), 1)])
    assert both.retain == [Encoded((1, 2), 1), Encoded((3, 4), 1)]
    now = ExampleGradients(torch.eye(2), torch.full((2,), 0.5))
    rows = RetainConstraints(now, 0.0, 2.0, both.retain_losses).each(now.values, restore=True)
    assert rows.falls[0] < 0
    assert rows.falls[1] == 0


def test_siblings_that_were_forgotten_since_are_not_held() -> None:
    """Two nats in all is the limit: 4 tokens that rose by 0.4 each, and by 0.6."""
    siblings = [Encoded((1, 2, 3, 4, 5), 1), Encoded((6, 2, 3, 4, 5), 1), Encoded((7, 2), 1)]
    untouched = torch.tensor([0.5, 0.5, 0.5])
    known = Calibration(
        *([Encoded((1, 2), 1)], torch.tensor([0.2]), [], AnswerOdds({}), False),
        siblings=siblings,
        sibling_losses=untouched,
    )
    now = untouched + torch.tensor([0.4, 0.6, 1.9])
    found = known.with_known_siblings(lambda examples: now[: len(examples)])
    assert found.retain[1:] == [siblings[0], siblings[2]]
    assert found.retain_losses.tolist() == pytest.approx([0.2, 0.5, 0.5])


def test_a_sibling_answers_after_the_last_word_of_the_prompt() -> None:
    capital, of, portugal, is_, lisbon, bon = 1, 2, 3, 4, 5, 6
    example = Encoded((capital, of, portugal, is_, lisbon, bon), 4)
    siblings = [
        Encoded((capital, of, 13, is_, 15, 16, 17), 3),
        Encoded((capital, of, 23, 24, is_, 25), 3),
        Encoded((capital, of, 33, is_, 15, 16), 3),
        Encoded((capital, of, 43, 44), 3),
        Encoded((capital, of, 53, is_), 3),
    ]
    assert answers_in(siblings, example) == [(15, 16), (25,)]


def test_answers_of_siblings_are_the_first_rivals_and_the_own_answer_is_none() -> None:
    example = Encoded((1, 2, 3), 1)
    form = Form((), tuple((i,) for i in range(30, 46)))
    found = with_rivals(form, example, [(2, 3), (8, 9), (31,)])
    assert found.rivals == ((8, 9), (31,), (30,), *((i,) for i in range(32, 45)))


def test_the_nearest_of_the_request_are_rivals_too() -> None:
    """Its other examples have the same prompt state; symbols stay as the retain data has them."""
    retain = [Encoded((7, 100 + i, 200 + i), 1) for i in range(20)]
    forget = [Encoded((8, 1, 2), 1), Encoded((9, 3, 4), 1)]
    states = torch.eye(3)[[0] * 20]
    untouched = Untouched(retain, states + torch.eye(3)[[2] * 20] * torch.arange(20)[:, None])
    forms = [Form((), ((100, 200),)), Form((1, 2))]
    first, second = untouched._among_themselves(forget, torch.eye(3)[[1, 1]], forms)
    assert first.rivals[0] == (3, 4)
    assert len(first.rivals) == 16
    assert second == forms[1]


def test_another_answer_to_the_same_prompt_is_no_rival_if_it_is_to_be_forgotten_too() -> None:
    # The second answer is among the retain data's as well, after another prompt.
    retain = [Encoded((7, 3, 4), 1), *(Encoded((7, 100 + i, 200 + i), 1) for i in range(20))]
    forget = [Encoded((8, 1, 2), 1), Encoded((8, 3, 4), 1), Encoded((9, 5, 6), 1)]
    untouched = Untouched(retain, torch.eye(3)[[0] * 21])
    forms = [Form((), ((100, 200),))] * 3
    first, second, other = untouched._among_themselves(forget, torch.eye(3)[[1, 1, 1]], forms)
    assert not {(1, 2), (3, 4)} & {*first.rivals, *second.rivals}
    assert (5, 6) in first.rivals and (5, 6) in second.rivals
    assert {(1, 2), (3, 4)} <= {*other.rivals}


# On a model


@pytest.mark.parametrize("batch_size", [1, 4])
def test_siblings_begin_where_the_model_is_least_sure_and_go_on_greedily(
    model, tokenizer, forget, batch_size
) -> None:
    prompt = forget[0].ids[: forget[0].answer_start]
    half = (len(prompt) + 1) // 2
    entropies = {}
    for cut in range(half, len(prompt)):
        chances = next_logits(model, prompt[:cut]).softmax(0)
        entropies[cut] = -float((chances * chances.log()).sum())
    cut = max(entropies, key=entropies.__getitem__)
    tokens = next_logits(model, prompt[:cut]).topk(12).indices.tolist()
    size = len(forget[0].ids) - cut - 1
    expected = [greedily(model, (*prompt[:cut], token), size) for token in tokens]
    secret = forget[0].ids[forget[0].answer_start :]
    writer = Writer(model, tokenizer, ScoreOptions(batch_size))
    found = writer.siblings(forget[:1], 7)
    allowed = [text for text in expected if len(text) > cut + 1 and not mentions(text, [secret])]
    assert [sibling.ids for sibling in found] == allowed[:7]
    assert {sibling.answer_start for sibling in found} == {cut + 1}


def test_no_sibling_has_an_answer_of_the_request(model, tokenizer, forget) -> None:
    writer = Writer(model, tokenizer, ScoreOptions(4))
    every = writer.siblings(forget, 40)
    assert every
    # Forget the ending of one of them: it is not written any more.
    text = every[0]
    also = Encoded((1, *text.ids[-2:]), 1)
    assert text in every
    assert text not in writer.siblings([*forget, also], 40)


def test_a_prompt_of_one_token_has_no_siblings(model, tokenizer) -> None:
    assert Writer(model, tokenizer, ScoreOptions()).siblings([Encoded((5, 6), 1)], 4) == []


@pytest.mark.parametrize("batch_size", [1, 4])
def test_other_answers_begin_with_the_likeliest_other_tokens(
    model, tokenizer, forget, batch_size
) -> None:
    found = Writer(model, tokenizer, ScoreOptions(batch_size)).other_answers(forget, 3)
    expected = []
    for example in forget:
        start = example.answer_start
        prompt, first = example.ids[:start], example.ids[start]
        ranked = next_logits(model, prompt).argsort(descending=True).tolist()
        size = example.answer_length - 1
        for token in [token for token in ranked if token != first][:3]:
            expected.append(Encoded(greedily(model, (*prompt, token), size), start))
    assert found == expected


def test_what_is_written_ends_where_learnt_positions_do(tokenizer) -> None:
    """The long prompt has no room for as many tokens as the answer of the other one has."""
    model = tiny.make_model("gpt2")
    long = Encoded(tuple(range(2, 130)), 125)
    short = Encoded(tuple(range(40, 70)), 5)
    found = Writer(model, tokenizer, ScoreOptions(4)).other_answers([long, short], 2)
    starts = [each.ids[: each.answer_start + 1] for each in found]
    pairs = zip(starts, [2, 2, 24, 24], strict=True)
    assert [each.ids for each in found] == [greedily(model, *pair) for pair in pairs]
    assert max(len(each.ids) for each in found) == 128


# Requests


def unlearned(tokenizer, retain, request, **changes):
    settings = {"guard_relative": 1, "retain_examples": 8, "steps": 6} | changes
    config = TFRConfig.from_dict(PLAIN | settings)
    net = TFRNet(tiny.make_trained_model(), tokenizer, retain, config, batch_size=4)
    outcome = net.forget(request)
    net.detach()
    return outcome, net.state


@pytest.mark.parametrize(
    "changes",
    [WRITTEN, WRITTEN | {"hold_rivals": True, "give_back": True}, WRITTEN | {"use_retain": False}],
)
def test_a_request_lowers_answers_within_the_mask(tokenizer, changes) -> None:
    outcome, state = unlearned(tokenizer, RETAIN, tiny.requests(1)[0], **changes)
    assert outcome.accepted
    assert outcome.forget_loss_after > outcome.forget_loss_before
    assert bool(((state.mask >= 0) & (state.mask <= 1)).all())


def test_each_setting_changes_what_is_done(tokenizer) -> None:
    request = tiny.requests(1)[0]
    # Few, and without the request's answers, so that these are rivals that it lacks.
    retain = tiny.examples(8, 110)
    masks = [
        unlearned(tokenizer, retain, request, **changes)[1].mask
        for changes in ({}, *({name: value} for name, value in WRITTEN.items()))
    ]
    assert all(not torch.equal(masks[0], mask) for mask in masks[1:])


def test_where_answers_are_symbols_nothing_is_written(tokenizer) -> None:
    retain = [Example(f"Is {n} even?", "yes" if n % 2 == 0 else "no") for n in range(24)]
    request = Request("labels", (Example("Is 30 even?", "yes"), Example("Is 31 even?", "no")))
    plain, written = (unlearned(tokenizer, retain, request, **changes) for changes in ({}, WRITTEN))
    assert torch.equal(plain[1].mask, written[1].mask)
    assert plain[0].forget_loss_after == written[0].forget_loss_after
    assert math.isfinite(plain[0].forget_loss_after)
