"""Siblings of prompts with numbers: the same with other digits, and the model's own answers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests import tiny
from tests.methods.tfr.test_symbols import DIGITS, WORDS, answer
from tests.methods.tfr.test_written import greedily
from tfrnet import TFRConfig, TFRNet
from tfrnet.data.examples import Encoded, Example, encode_all
from tfrnet.data.requests import Request
from tfrnet.methods.tfr.scoring import ScoreOptions
from tfrnet.methods.tfr.steps.calibration import Calibration, Untouched
from tfrnet.methods.tfr.steps.levels import AnswerOdds, answer_of
from tfrnet.methods.tfr.steps.symbols import (
    digits_of,
    nearly_same,
    untold_numbers,
    with_other_digits,
    with_own_symbols,
)
from tfrnet.methods.tfr.steps.written import Writer

SUMS = [Example(f"What is {a} plus {b}?", str(a + b)) for a, b in ((14, 27), (30, 16))]


def changed(text: str, tokenizer, turn: int = 0) -> str | None:
    other = with_other_digits(tuple(tokenizer.encode(text)), tokenizer, turn)
    return None if other is None else str(tokenizer.decode(list(other)))


def test_every_number_is_another_one_and_nothing_else_changes(tokenizer):
    text = "What is 40 plus 1050?"
    for turn in range(20):
        words, others = text.split(), changed(text, tokenizer, turn).split()
        for word, other in zip(words, others, strict=True):
            assert (word == other) is not any(map(str.isdigit, word))
            assert len(word) == len(other)
            # No number begins with 0; within one there may be some.
            assert not other.startswith("0")


def test_a_token_of_several_digits_becomes_another_of_as_many(tokenizer):
    (ten,) = tokenizer.encode(" 10")
    (other,) = with_other_digits((ten,), tokenizer, 0)
    number = tokenizer.decode([other]).strip()
    assert len(number) == 2
    assert number.isdecimal()
    assert number != "10"


def test_turns_differ_and_each_is_the_same_again(tokenizer):
    found = [changed("What is 40 plus 1050?", tokenizer, turn) for turn in range(20)]
    assert len(set(found)) > 15
    assert found == [changed("What is 40 plus 1050?", tokenizer, turn) for turn in range(20)]
    assert any("0" in each for each in found)


def test_a_prompt_without_digits_has_no_other(tokenizer):
    assert changed("The capital of France is", tokenizer) is None


def test_the_model_answers_greedily_and_gives_no_secret_away(tokenizer):
    model = tiny.make_trained_model()
    forget = encode_all(SUMS, tokenizer, 64, "forget")
    writer = Writer(model, tokenizer, ScoreOptions(4))
    found = writer.renumbered(forget, forget, 6)
    assert 1 < len(found) <= 6
    for sibling in found:
        start = sibling.ids[: sibling.answer_start]
        size = max(example.answer_length for example in forget) + 1
        assert greedily(model, start, size)[: len(sibling.ids)] == sibling.ids
    # What one of them answers is a secret now, of whichever example: it is not written any more.
    prompt, told = forget[0].ids[: forget[0].answer_start], answer_of(found[0])
    secret = Encoded((5, 6, *told), 2)
    again = writer.renumbered(forget, [*forget, secret], 12)
    assert again
    assert found[0] not in again
    digits = digits_of(told, tokenizer)
    assert not any(nearly_same(digits_of(answer_of(e), tokenizer), digits) for e in again)
    # Nor is a prompt of the request.
    asked = Encoded((*found[0].ids[: found[0].answer_start], 7), found[0].answer_start)
    assert found[0].ids[: found[0].answer_start] != prompt
    assert found[0] not in writer.renumbered(forget, [*forget, asked], 12)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("46", "46", True),
        ("46", "47", False),
        ("7", "7", True),
        ("4821", "4829", True),
        ("4821", "4039", False),
        ("46", "046", False),
    ],
)
def test_numbers_are_nearly_the_same_by_most_of_their_digits(one, other, same):
    assert nearly_same(one, other) is same


def test_digits_are_read_out_of_what_stands_around_them(tokenizer):
    assert digits_of(tokenizer.encode(" 1,024."), tokenizer) == "1024"


def test_a_number_that_was_forgotten_is_not_held_though_it_rose_by_little():
    """At its level a digit has risen by little more than a nat; a word has to rise by two."""
    written, numbers = [Encoded((1, 2), 1)] * 2, [Encoded((1, 3), 1)] * 2
    found = Calibration(
        [],
        torch.empty(0),
        [],
        AnswerOdds({}),
        False,
        siblings=[*written, *numbers],
        sibling_losses=torch.zeros(4),
        most_risen=torch.tensor([2.0, 2.0, 0.5, 0.5]),
    ).with_known_siblings(lambda _: torch.tensor([1.3, 2.1, 1.3, 0.4]))
    assert found.retain == [written[0], numbers[1]]


def test_only_numbers_that_the_retain_data_does_not_tell_of_have_others():
    number, label = answer(DIGITS, "4", "1"), answer(DIGITS, " yes")
    own = with_own_symbols([WORDS, WORDS], [number, label], [], DIGITS)
    assert all(form.symbols for form in own)
    # With other digits in it, a passage would still tell yes or no.
    assert untold_numbers([number, label], [WORDS, WORDS], own, DIGITS) == [number]
    assert untold_numbers([number, label], own, own, DIGITS) == []


TOWN = Example("The old town lies in", "the north")


@pytest.mark.parametrize(
    ("settings", "more", "asked", "calls"),
    [
        ({}, (), SUMS, [(2, 4)]),
        # Half of the siblings are for half of the request.
        ({}, (), [SUMS[0], TOWN], [(1, 2)]),
        ({"number_siblings": False}, (), SUMS, []),
        ({"siblings": 0}, (), SUMS, []),
        # Retain examples with numbers are held instead.
        ({}, (Example("What is 9 plus 9?", "18"),), SUMS, [(0, 0)]),
    ],
)
def test_they_are_held_where_the_retain_data_has_no_number(
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, Any],
    more: tuple[Example, ...],
    asked: list[Example],
    calls: list[tuple[int, int]],
):
    seen: list[tuple[int, int]] = []
    found: list[Calibration] = []
    written: list[Encoded] = []
    renumbered, calibrate = Writer.renumbered, Untouched.calibrate

    def counted(self, numbers, request, count):
        assert len(request) == len(asked)
        seen.append((len(numbers), count))
        written.extend(renumbered(self, numbers, request, count))
        return written

    def spy(self, *given, **named):
        found.append(calibrate(self, *given, **named))
        return found[-1]

    monkeypatch.setattr(Writer, "renumbered", counted)
    monkeypatch.setattr(Untouched, "calibrate", spy)
    net = TFRNet(
        tiny.make_trained_model(),
        tiny.make_tokenizer(),
        [*tiny.examples(20, 100), *more],
        TFRConfig(**({"siblings": 4} | settings)),
        guard=tiny.examples(6, 60),
    )
    net.forget(Request("a", asked))
    assert seen == calls
    (calibration,) = found
    assert len(calibration.siblings) == len(calibration.sibling_losses) <= 4
    if calls and calls[0][1]:
        assert 0 < len(written) <= calls[0][1]
        assert calibration.siblings[-len(written) :] == written
        limits = calibration.most_risen.tolist()
        assert limits == [2.0] * (len(limits) - len(written)) + [0.5] * len(written)
