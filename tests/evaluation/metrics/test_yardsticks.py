"""Distance to the oracle, witnesses and fluency, against hand and independent computations."""

import math

import numpy as np
import pytest

from tfrnet.core.errors import InputError
from tfrnet.evaluation.metrics.fluency import (
    Fluency,
    fluency,
    is_language,
    perplexity_ratio,
    repetition,
)
from tfrnet.evaluation.metrics.oracle import (
    Answers,
    OracleDistance,
    oracle_distance,
    over_forgetting,
)
from tfrnet.evaluation.metrics.witness import witness_ratios


def largest_gap(left, right):
    """The Kolmogorov-Smirnov statistic by its definition: the largest gap of the step functions."""
    points = [*left, *right]
    return max(
        abs(sum(v <= p for v in left) / len(left) - sum(v <= p for v in right) / len(right))
        for p in points
    )


def test_the_oracle_is_at_no_distance_from_itself():
    own = Answers([True, False], [0.1, 3.0], ["a", "b"])
    assert oracle_distance(own, own) == OracleDistance(0.0, 0.0, 100.0)


def test_the_distance_is_that_of_accuracies_losses_and_answers():
    random = np.random.default_rng(0)
    own, oracle = random.gamma(2, 2, 37), random.gamma(2, 1, 37)
    right, known = random.random(37) < 0.5, random.random(37) < 0.2
    said, told = random.integers(0, 3, 37).astype(str), random.integers(0, 3, 37).astype(str)
    found = oracle_distance(Answers(right, own, said), Answers(known, oracle, told))
    assert found.accuracy == pytest.approx(100 * (right.sum() - known.sum()) / 37)
    assert found.losses == pytest.approx(largest_gap(own, oracle))
    assert found.agreement == pytest.approx(100 * sum(map(str.__eq__, said, told)) / 37)


def test_different_items_have_no_distance():
    with pytest.raises(InputError, match="the same items"):
        oracle_distance(Answers([True], [1.0], ["a"]), Answers([True] * 2, [1.0] * 2, ["a"] * 2))
    with pytest.raises(InputError, match="for every item"):
        Answers([True], [1.0, 2.0], ["a"])


def test_over_forgetting_counts_what_is_deeper_than_nearly_all_of_the_oracles():
    oracle = np.arange(101.0)  # 99 is the 99th percentile exactly
    assert over_forgetting([98.0, 99.0, 99.5, 120.0], oracle) == 50.0
    assert over_forgetting(oracle, oracle) == pytest.approx(100 / 101)


def test_witnesses_are_told_by_group():
    before = {"boolq": [0.5, 1.5], "text": [3.0]}
    assert witness_ratios(before, {"boolq": [1.0, 2.0], "text": [3.0]}) == {
        "boolq": 1.5,
        "text": 1.0,
    }
    for bad in ({"boolq": [1.0, 2.0]}, {"boolq": [1.0], "text": [3.0]}):
        with pytest.raises(InputError, match="the same"):
            witness_ratios(before, bad)


def test_perplexities_are_compared_as_geometric_means():
    # Two continuations with perplexities 8 and 2 against two of 2: (8 * 2) ** 0.5 / 2.
    assert perplexity_ratio([math.log(8), math.log(2)], [math.log(2)] * 2) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("text", "share"),
    [("", 0.0), ("a b", 0.0), ("a b c", 0.0), ("a b c a b c", 0.25), ("no no no no no", 2 / 3)],
)
def test_repetition_is_the_share_of_runs_seen_before(text, share):
    assert repetition(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["The capital is Paris.", "It's 22,883 (so-called).", "143", "-7"])
def test_words_and_numbers_are_language(text):
    assert is_language(text)


@pytest.mark.parametrize("text", ["", "  ", "}{ ;; <| ab", "x9_q ##t ␣␣ the", "\ufffd\ufffd"])
def test_symbols_and_nothing_are_not(text):
    assert not is_language(text)


def test_texts_that_are_all_empty_have_no_perplexity_and_are_not_language():
    assert fluency(["", " "], [], []) == Fluency(None, 0.0, 100.0)


def test_fluency_has_all_three():
    found = fluency(["so it is", ";; ;; ;; ;;"], [2.0, 4.0], [1.0, 1.0])
    assert (found.perplexity_ratio, found.repeated, found.not_language) == pytest.approx(
        (math.exp(2), 25.0, 50.0)
    )
