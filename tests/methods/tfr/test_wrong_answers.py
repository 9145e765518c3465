"""Wrong answers that an example names: what its answer is compared with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from tests import tiny
from tfrnet import TFRConfig, TFRNet
from tfrnet.core.errors import InputError
from tfrnet.data.examples import Encoded, Example
from tfrnet.data.requests import Request
from tfrnet.methods.tfr.steps.calibration import Calibration, Untouched
from tfrnet.methods.tfr.steps.levels import Form, rival_examples, with_wrong_answers

WRONG = ("green", "a red house", "blue")
FORGET = tiny.examples(2)


def test_wrong_answers_take_the_place_of_all_others_but_not_of_symbols():
    example, wrong = Encoded((1, 2, 3), 2), [Encoded((1, 2, 7), 2), Encoded((1, 2, 8, 8), 2)]
    worded, labels = Form((), ((9,),)), Form((4, 5))
    named = [wrong[0], example, wrong[1], wrong[0]]
    found = with_wrong_answers(
        [worded, labels, worded, worded], [example] * 4, [named, named, [], [example]]
    )
    assert found == [Form((), named=tuple(wrong)), labels, worded, worded]
    assert rival_examples(example, found[0], 64, None) == wrong


def net(**settings: Any) -> TFRNet:
    return TFRNet(
        tiny.make_trained_model(),
        tiny.make_tokenizer(),
        tiny.examples(20, 100),
        TFRConfig(siblings=0, untouched_siblings=False, **settings),
        guard=tiny.examples(6, 60),
    )


def calibrated(
    monkeypatch: pytest.MonkeyPatch, examples: list[Example], **settings: Any
) -> tuple[Calibration, list[Encoded]]:
    """Return what a request's examples are compared with."""
    seen = []
    calibrate = Untouched.calibrate

    def spy(self, model, forget, *given, **named):
        found = calibrate(self, model, forget, *given, **named)
        seen.append((found, forget))
        return found

    monkeypatch.setattr(Untouched, "calibrate", spy)
    net(**settings).forget(Request("a", examples))
    return seen[0]


def loss_by_hand(prompt: str, answer: str) -> float:
    model, tokenizer = tiny.make_trained_model(), tiny.make_tokenizer()
    ids, start = tokenizer(f"{prompt} {answer}")["input_ids"], len(tokenizer(prompt)["input_ids"])
    with torch.no_grad():
        logs = model(torch.tensor([ids])).logits[0].double().log_softmax(1)
    return -sum(float(logs[i - 1, ids[i]]) for i in range(start, len(ids))) / (len(ids) - start)


@pytest.mark.parametrize("quantile", [0.0, 0.5])
def test_the_level_is_the_median_of_the_wrong_answers_under_the_untouched_model(
    monkeypatch, quantile
):
    examples = [replace(each, wrong_answers=WRONG) for each in FORGET]
    found, forget = calibrated(monkeypatch, examples, level_quantile=quantile)
    for example, level in zip(FORGET, found.odds.targets(forget).tolist(), strict=True):
        losses = sorted(loss_by_hand(example.prompt, wrong) for wrong in WRONG)
        chance = torch.tensor(-losses[1]).exp()
        assert level == pytest.approx(float(torch.logit(chance)), rel=1e-4)
    assert len(found.rivals) == len(WRONG) * len(FORGET)


def test_an_example_without_wrong_answers_is_compared_as_before(monkeypatch):
    named = [FORGET[0], replace(FORGET[1], wrong_answers=WRONG)]
    some, forget = calibrated(monkeypatch, named)
    none, _ = calibrated(monkeypatch, named, use_wrong_answers=False)
    plain, _ = calibrated(monkeypatch, FORGET)
    levels = [each.odds.targets(forget).tolist() for each in (some, none, plain)]
    assert levels[0][0] == pytest.approx(levels[1][0], rel=1e-5)
    assert levels[0][1] != levels[1][1]
    assert levels[1] == levels[2]


def test_a_wrong_answer_that_cannot_be_used_is_refused_before_the_first_request():
    bad = Request("b", [replace(FORGET[0], wrong_answers=("so " * 400,))])
    with pytest.raises(
        InputError, match="request 'b', example 1, wrong answers, example 1: the answer has"
    ):
        net().prepare([Request("a", FORGET[1:]), bad])
    assert net(use_wrong_answers=False).prepare([bad])


def test_a_wrong_answer_without_a_space_before_it_is_the_text_that_was_meant(monkeypatch):
    """Prompt and answer may share a token; that one differs from answer to answer."""
    example = Example("He is un", "kind", join="", wrong_answers=("happy", "able"))
    found, _ = calibrated(monkeypatch, [example])
    tokenizer = tiny.make_tokenizer()
    texts = [tokenizer.decode(list(rival.ids)) for rival in found.rivals]
    assert texts == ["He is unhappy", "He is unable"]


def test_the_prompt_of_a_long_wrong_answer_is_cut_to_fit(monkeypatch):
    example = replace(FORGET[0], prompt="so " * 90, wrong_answers=("a red house " * 4,))
    found, forget = calibrated(monkeypatch, [example], max_length=64)
    assert [len(each.ids) for each in (*forget, *found.rivals)] == [64, 64]
