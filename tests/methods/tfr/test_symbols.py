"""Answers that are told by themselves: numbers in digits, yes and no."""

from __future__ import annotations

from typing import Any

import pytest

from tests import tiny
from tfrnet import TFRConfig, TFRNet
from tfrnet.data.examples import Encoded, Example
from tfrnet.data.kinds import kind_of, other_label
from tfrnet.data.requests import Request
from tfrnet.methods.tfr.steps.calibration import Untouched
from tfrnet.methods.tfr.steps.levels import Form
from tfrnet.methods.tfr.steps.symbols import with_own_symbols


class Words:
    """A tokenizer that knows these words alone."""

    def __init__(self, *words: str) -> None:
        self.words = words

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        assert not add_special_tokens
        if text in self.words:
            return [self.words.index(text)]
        return [self.words.index(letter) for letter in text]

    def decode(self, ids: list[int]) -> str:
        return "".join(self.words[i] for i in ids)


WORDS = Form((), ((1, 2),))
DIGITS = Words(*"0123456789", " ", "-", " yes", " no", " Paris", ".", "12", "y", "e", "s", "n", "o")


def answer(tokenizer: Words, *tokens: str) -> Encoded:
    return Encoded((0, *(tokenizer.words.index(token) for token in tokens)), 1)


def symbols(*tokens: str, retain: tuple[Encoded, ...] = (), tokenizer: Words = DIGITS) -> set[str]:
    (found,) = with_own_symbols([WORDS], [answer(tokenizer, *tokens)], retain, tokenizer)
    assert found.symbols or found is WORDS
    return {tokenizer.words[i] for i in found.symbols}


@pytest.mark.parametrize(
    ("text", "kind"),
    [(" 12", "number"), ("-7.", "number"), ("Yes", "label"), ("false", "label")]
    + [(text, None) for text in ("yes, he did", "12 men", "", "Paris", "3.5")],
)
def test_kinds_are_told_by_the_text(text, kind):
    assert kind_of(text) == kind


def test_the_other_label_is_written_in_the_same_way():
    assert [other_label(text) for text in (" yes", "No.", "TRUE", "maybe")] == [
        " no",
        "Yes.",
        "FALSE",
        None,
    ]


def test_a_number_is_in_digits_with_what_stands_before_them():
    assert symbols(" ", "1", "2") == {*"0123456789", " "}
    assert symbols("-", "7") == {*"0123456789", "-"}


def test_a_label_is_one_of_two():
    assert symbols(" yes") == symbols(" no") == {" yes", " no"}
    assert symbols(" yes", ".") == {" yes", " no", "."}


def test_other_answers_and_tokens_of_several_digits_are_no_symbols():
    assert symbols(" Paris") == set()
    assert symbols("12") == set()
    assert symbols("12", "3") == set()
    assert symbols("y", "e", "s") == set()
    assert symbols(" yes", tokenizer=Words(" yes", " ", "n", "o")) == set()


def test_what_the_retain_data_has_is_told_by_the_retain_data():
    retain = (answer(DIGITS, "1", "2"), answer(DIGITS, " Paris"))
    assert symbols("7", retain=retain) == set()
    assert symbols(" yes", retain=retain) == {" yes", " no"}
    long = (answer(DIGITS, *"1" * 30),)
    assert symbols("7", retain=long) == {*"0123456789"}


def test_of_a_long_number_every_digit_counts():
    assert symbols(*"5551") == {*"0123456789"}
    assert symbols(*"55512") == set()


def test_what_is_known_to_be_in_symbols_stays():
    known = Form((0, 1))
    assert with_own_symbols([known], [answer(DIGITS, "7")], [], DIGITS) == [known]


@pytest.mark.parametrize(
    ("settings", "more", "worded"),
    [
        ({}, (), []),
        ({"own_symbols": False}, (), [0, 1]),
        # The retain data has numbers, which look like many other things to it.
        ({}, (Example("Bees have legs:", "6"),), [0, 1]),
    ],
)
def test_a_step_takes_a_number_for_digits_where_the_retain_data_has_none(
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, Any],
    more: tuple[Example, ...],
    worded: list[int],
):
    seen = []
    calibrate = Untouched.calibrate

    def spy(self, model, forget, *given, **named):
        found = calibrate(self, model, forget, *given, **named)
        seen.append([forget.index(each) for each in found.odds.in_words(forget)])
        return found

    monkeypatch.setattr(Untouched, "calibrate", spy)
    net = TFRNet(
        tiny.make_trained_model(),
        tiny.make_tokenizer(),
        [*tiny.examples(20, 100), *more],
        TFRConfig(siblings=0, untouched_siblings=False, **settings),
        guard=tiny.examples(6, 60),
    )
    net.forget(Request("a", [Example("The sum is", "41"), Example("The sum now is", "46")]))
    assert seen == [worded]
