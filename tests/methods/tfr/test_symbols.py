"""Answers that are told by themselves: numbers in digits, yes and no."""

from __future__ import annotations

from typing import Any

import pytest

from tests import tiny
from tfrnet import TFRConfig, TFRNet
from tfrnet.data.examples import Encoded, Example
from tfrnet.data.kinds import kind_of, other_label
from tfrnet.data.requests import Request
from tfrnet.methods.tfr.steps.calibrate import Untouched
from tfrnet.methods.tfr.steps.symbols import kinds_among, own_form


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


DIGITS = Words(*"0123456789", " ", "-", " yes", " no", " Paris", "12", "y", "e", "s", "n", "o")


def answer(tokenizer: Words, *tokens: str) -> Encoded:
    return Encoded((0, *(tokenizer.words.index(token) for token in tokens)), 1)


def form(*tokens: str, known: set = frozenset(), tokenizer: Words = DIGITS) -> set[str] | None:
    found = own_form(answer(tokenizer, *tokens), tokenizer, set(known))
    return found and {tokenizer.words[i] for i in found.symbols}


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
    assert form(" ", "1", "2") == {*"0123456789", " "}
    assert form("-", "7") == {*"0123456789", "-"}


def test_a_label_is_one_of_two():
    assert form(" yes") == form(" no") == {" yes", " no"}


def test_other_answers_and_tokens_of_several_digits_are_no_symbols():
    assert form(" Paris") is None
    assert form("12") is None
    assert form("12", "3") is None
    assert form("y", "e", "s") is None
    assert form(" yes", tokenizer=Words(" yes", " ", "n", "o")) is None


def test_what_the_retain_data_has_is_told_by_the_retain_data():
    retain = [answer(DIGITS, "1", "2"), answer(DIGITS, " Paris")]
    known = kinds_among(retain, DIGITS)
    assert known == {"number"}
    assert form("7", known=known) is None
    assert form(" yes", known=known) == {" yes", " no"}
    assert kinds_among([answer(DIGITS, *"1" * 30)], DIGITS) == set()


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
