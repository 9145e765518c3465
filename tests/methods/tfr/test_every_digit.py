"""Long numbers, such as those of telephones: every digit counts, not only the weakest."""

from __future__ import annotations

import math

import pytest
import torch

from tests import tiny
from tests.methods.tfr.test_symbols import Words
from tfrnet import TFRConfig, TFRNet
from tfrnet.data.examples import Encoded, Example, encode_all
from tfrnet.data.requests import Request
from tfrnet.methods.tfr.scoring import ScoreOptions
from tfrnet.methods.tfr.steps import calibration
from tfrnet.methods.tfr.steps.levels import (
    Form,
    form_of,
    level_of,
    symbol_odds,
    typical_odds,
    weakest_odds,
)
from tfrnet.methods.tfr.steps.reference import Reference
from tfrnet.methods.tfr.steps.symbols import with_every_digit
from tfrnet.models.forward import answer_logits, collate

TOKENIZER = Words(*"0123456789", "-", " ", " +", "x", "555", "013", "012")
DIGITS = tuple(range(10))


def encoded(number: str | list[str]) -> Encoded:
    return Encoded((13, *(TOKENIZER.words.index(token) for token in number)), 1)


def form(number: str | list[str], *retain: str | list[str]) -> Form:
    """The form of an answer, given the retain answers."""
    known = [encoded(other) for other in retain]
    example = encoded(number)
    found = form_of(example, known)
    assert found.symbols
    (every,) = with_every_digit([found], [example], [known], TOKENIZER)
    assert (every.symbols, every.rivals) == (found.symbols, found.rivals)
    return every


def counted(number: str | list[str], *retain: str | list[str]) -> str:
    """The digits of an answer that count."""
    tokens = encoded(number).ids[1:]
    return "".join(TOKENIZER.words[tokens[i]] for i in form(number, *retain).counted(tokens))


# The objective


def odds_by_hand(logits: torch.Tensor, answer: list[int], symbols: list[int]) -> float:
    """The same from probabilities, in plain Python."""
    wrong = 1.0
    for row, own in zip(logits.tolist(), answer, strict=True):
        total = sum(math.exp(row[each]) for each in symbols)
        wrong *= 1 - math.exp(row[own]) / total
    wrong **= 1 / len(answer)
    return math.log((1 - wrong) / wrong)


@pytest.fixture
def logits() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return 3 * torch.randn(7, 14, dtype=torch.float64, generator=generator)


def test_it_is_the_geometric_mean_of_being_wrong(logits: torch.Tensor) -> None:
    answer, symbols = [3, 3, 0, 9, 1, 4, 8], [*range(10)]
    found = typical_odds(logits, torch.tensor(answer), symbols)
    assert float(found) == pytest.approx(odds_by_hand(logits, answer, symbols), abs=1e-12)


def test_its_gradient_is_that_of_finite_differences(logits: torch.Tensor) -> None:
    answer = torch.tensor([3, 3, 0, 9, 1, 4, 8])
    logits.requires_grad_()
    torch.autograd.gradcheck(lambda x: typical_odds(x, answer, DIGITS), (logits,), eps=1e-6)


def test_where_all_digits_are_alike_it_is_the_log_odds_of_one() -> None:
    logits = torch.zeros(6, 10, dtype=torch.float64)
    answer = torch.arange(6)
    chance = float(typical_odds(logits, answer, DIGITS))
    assert chance == pytest.approx(-math.log(9))
    logits[range(6), answer] = 5
    assert float(typical_odds(logits, answer, DIGITS)) == pytest.approx(5 - math.log(9))


def test_known_digits_pull_alike_and_a_guess_hardly() -> None:
    """The weakest token has all of the weight in the other objective, and none in this one."""
    own = torch.tensor([12.0, 8.0, 0.0], requires_grad=True)
    logits = torch.cat([own.unsqueeze(1), torch.zeros(3, 9)], 1)
    answer = torch.zeros(3, dtype=torch.long)
    (every,) = torch.autograd.grad(typical_odds(logits, answer, DIGITS), own, retain_graph=True)
    (weakest,) = torch.autograd.grad(weakest_odds(logits, answer, DIGITS), own)
    assert float(every[0] / every[1]) == pytest.approx(1, abs=0.01)
    assert float(every[2] / every[0]) == pytest.approx(0.1, abs=0.01)
    assert float(weakest[2]) > 0.99


@pytest.mark.parametrize("sure", [-300.0, -30.0, 0.0, 30.0, 300.0])
def test_values_and_gradients_stay_finite(sure: float) -> None:
    logits = torch.zeros(5, 10)
    logits[:, 0] = sure
    logits.requires_grad_()
    value = typical_odds(logits, torch.zeros(5, dtype=torch.long), DIGITS)
    value.backward()
    assert bool(value.isfinite())
    assert bool(logits.grad.isfinite().all())


def test_one_digit_at_a_guess_is_enough_for_the_weakest_alone() -> None:
    logits = torch.zeros(7, 14)
    answer = torch.tensor([5, 5, 5, 0, 1, 3, 4])
    logits[range(6), answer[:6]] = 12
    long, short = Form(DIGITS, digits=DIGITS), Form(DIGITS)
    assert level_of(short, [], 0.5) == -1
    assert level_of(long, [], 0.5) == pytest.approx(-math.log(9))
    logits[6, 4] = -3
    assert float(symbol_odds(logits, answer, short)) < -1
    assert float(symbol_odds(logits, answer, long)) > 5


# Which digits count


NUMBERS = ("030-4412", "671-2299", "898-5503", "147-3068", "212-7745")


def test_separators_do_not_count() -> None:
    assert counted("555-0134", *NUMBERS) == "5550134"
    separated = [" +", *"49 30 1", *"7"]
    assert counted(separated, *[[" +", *"31 20 5", *"2"], [" +", *"77 88 6", *"9"]] * 2) == "493017"
    found, answer = form("555-0134", *NUMBERS), torch.tensor(encoded("555-0134").ids[1:])
    logits = torch.randn(8, 17, generator=torch.Generator().manual_seed(1))
    before = symbol_odds(logits, answer, found)
    logits[3] = 40.0  # where the separator stands
    logits[:, 10:] += 20.0  # and the separators, where digits stand
    torch.testing.assert_close(symbol_odds(logits, answer, found), before)


def test_all_ten_digits_are_other_guesses_though_few_answers_show_them() -> None:
    assert form("555-0134", "555-0199", "555-0199").digits == DIGITS


def test_what_most_numbers_begin_with_is_no_secret() -> None:
    same = ("555-0199", "555-0172", "555-0129", "555-0177")
    assert counted("555-0134", *same) == "34"
    assert counted("555-0134", *same, *NUMBERS[:4]) == "5550134"
    # Of an answer that another one has too, all digits count.
    assert counted("555-0134", "555-0134", "555-0134") == "5550134"
    # In a number that begins otherwise too.
    assert len(form("555-0134", *same).counted(encoded("147-3068").ids[1:])) == 7


@pytest.mark.parametrize("number", ["7", "41", "4134", "-413", "41-3"])
def test_of_up_to_four_digits_the_weakest_symbol_counts_as_ever(number: str) -> None:
    example, retain = encoded(number), [encoded(f"{n:03}-") for n in range(5, 900, 19)]
    found = form_of(example, retain)
    (same,) = with_every_digit([found], [example], [retain], TOKENIZER)
    assert same is found
    assert same.symbols
    answer = torch.tensor(example.ids[1:])
    logits = torch.randn(len(answer), 17, generator=torch.Generator().manual_seed(2))
    odds = logits.gather(1, answer.unsqueeze(1)).squeeze(1) - torch.stack(
        [
            row[[each for each in found.symbols if each != own]].logsumexp(0)
            for row, own in zip(logits, answer.tolist(), strict=True)
        ]
    )
    by_hand = -((-odds).logsumexp(0) - math.log(len(answer)))
    assert float(symbol_odds(logits, answer, found)) == pytest.approx(float(by_hand), abs=1e-5)
    assert torch.equal(
        symbol_odds(logits, answer, found), weakest_odds(logits, answer, found.symbols)
    )


def test_tokens_of_several_digits_count_as_they_are() -> None:
    number, other = ["555", "-", "013", "4"], ["012", "-", "555", "7"]
    found = form(number, other, other)
    assert found.counted(encoded(number).ids[1:]) == [0, 2, 3]
    assert {*DIGITS, 14, 15, 16} == set(found.digits)
    logits = torch.zeros(4, 17)
    odds = symbol_odds(logits, torch.tensor(encoded(number).ids[1:]), found)
    assert float(odds) == pytest.approx(-math.log(12))


def test_a_number_that_is_one_token_has_no_other_digits() -> None:
    words = Words("12345", "x", "-")
    example, known = Encoded((1, 0), 1), Form((0, 2))
    assert with_every_digit([known], [example], [[]], words) == [known]


def test_words_stay_words() -> None:
    words = Form((), ((1, 2),))
    assert with_every_digit([words], [encoded("555-0134")], [[]], TOKENIZER) == [words]


# Requests


def numbers(size: int, *starts: int) -> list[Example]:
    """Examples whose answers are numbers of so many digits.

    All begin alike: together with the space before it the first digit is a token of its own.
    """
    return [
        Example(f"Item {n} of the box is", f"7{pow(7, n + 30, 10 ** (size - 1)):0{size - 1}}")
        for start in starts
        for n in range(start, start + 3)
    ]


@pytest.mark.parametrize("size", [3, 6])
def test_a_step_sees_every_digit_of_long_numbers_and_leaves_short_ones_as_they_were(
    tokenizer, size: int, monkeypatch: pytest.MonkeyPatch, _two_threads: None
) -> None:
    torch.set_num_threads(1)  # quicker with so small a model
    # So low that there is something to do: the model knows no numbers.
    monkeypatch.setattr(calibration, "level_of", lambda *_: -9.0)
    masks = []
    quick = {
        "steps": 1,
        "retain_examples": 4,
        "near_examples": 2,
        "guard_relative": 10,
        "least_reached": 0,
    }
    for every_digit in (True, False):
        net = TFRNet(
            tiny.make_trained_model(),
            tokenizer,
            numbers(size, *range(3, 36, 3)),
            TFRConfig(every_digit=every_digit, **quick),
            guard=tiny.examples(2, 60),
            batch_size=8,
        )
        net.forget(Request("a", tuple(numbers(size, 0))))
        masks.append(net.state.mask)
        net.detach()
    assert bool((masks[1] < 1).any())
    assert torch.equal(*masks) == (size == 3)


def test_reference_numbers_are_measured_at_every_digit_too(tokenizer) -> None:
    model, options = tiny.make_model(), ScoreOptions(batch_size=4)
    known = encode_all(numbers(6, 0, 3), tokenizer, 64, "reference")
    digits = tuple(tokenizer.encode(digit)[0] for digit in "0123456789")
    forms = [Form(digits, digits=digits), Form(digits)]
    reference = Reference.of(model, known, options)
    states = reference.states[:2]
    every, weakest = reference.levels(model, states, forms, options, 0.5)
    found: list[list[float]] = [[], []]
    for example in known:
        batch = collate([example], "cpu")
        logits = answer_logits(model, batch).detach()
        # The first digit is a token of its own, with the space before it.
        found[0].append(float(typical_odds(logits[1:], batch.targets[1:], digits)))
        found[1].append(float(weakest_odds(logits, batch.targets, digits)))
    assert every == pytest.approx(float(torch.tensor(found[0]).quantile(0.5)), abs=1e-4)
    assert weakest == pytest.approx(float(torch.tensor(found[1]).quantile(0.5)), abs=1e-4)
    assert every > weakest
