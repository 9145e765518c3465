"""Batches: which examples go through the model together."""

import random
from itertools import combinations, pairwise

import pytest

from tfrnet.data.batches import batches
from tfrnet.data.examples import Encoded


def examples(*lengths: int, answer: int = 1) -> list[Encoded]:
    """Examples of so many tokens."""
    return [Encoded(tuple(range(n)), n - answer) for n in lengths]


def padded_tokens(rows: list[Encoded], groups: list[list[int]]) -> int:
    """The inputs of all batches; an example's last token is none."""
    return sum(len(group) * max(len(rows[i].ids) - 1 for i in group) for group in groups)


def cost(rows: list[Encoded], groups: list[list[int]], overhead: int) -> int:
    return overhead * len(groups) + padded_tokens(rows, groups)


def fits(rows: list[Encoded], group: list[int], size: int, answers: int, tokens: int) -> bool:
    return len(group) == 1 or (
        len(group) <= size
        and sum(rows[i].answer_length for i in group) <= answers
        and padded_tokens(rows, [group]) <= tokens
    )


def mixed(seed: int, count: int, longest: int) -> list[Encoded]:
    drawn = random.Random(seed)
    rows = []
    for _ in range(count):
        length = drawn.randint(2, longest)
        rows += examples(length, answer=drawn.randint(1, length - 1))
    return rows


def test_they_group_by_length_and_hold_everything_once():
    rows = examples(5, 30, 6, 29, 7, 5, answer=2)
    assert batches(rows, 2) == [[0, 5], [2, 4], [3, 1]]
    assert batches([], 2) == batches([], 2, overhead=30) == []


def test_they_are_cut_where_logits_would_be_too_many():
    rows = examples(*[40] * 5, answer=30)
    for overhead in (None, 1000):
        sizes = [
            [len(group) for group in batches(rows, 8, most, overhead=overhead)] for most in (70, 10)
        ]
        assert [sorted(each) for each in sizes] == [[1, 2, 2], [1] * 5]


def test_they_count_tokens_with_padding():
    rows = examples(10, 3, 5, 30, 9)
    # The last token of an example is no input.
    assert batches(rows, 8, max_tokens=18) == [[1, 2], [4, 0], [3]]
    assert batches(rows, 8, max_tokens=17) == [[1, 2], [4], [0], [3]]
    assert batches(rows, 8) == [[1, 2, 4, 0, 3]]


@pytest.mark.parametrize("seed", range(20))
def test_with_an_overhead_no_other_groups_within_the_limits_cost_less(seed: int):
    drawn = random.Random(seed)
    rows = mixed(seed, drawn.randint(1, 9), 20)
    overhead = drawn.choice([0, 3, 10, 40])
    limits = drawn.randint(1, 6), drawn.choice([15, 40, 2048]), drawn.choice([12, 40, 1000])
    order = sorted(range(len(rows)), key=lambda i: len(rows[i].ids))
    cuts = [
        [0, *inner, len(rows)]
        for count in range(len(rows))
        for inner in combinations(range(1, len(rows)), count)
    ]
    ways = [[order[a:b] for a, b in pairwise(cut)] for cut in cuts]
    allowed = [way for way in ways if all(fits(rows, group, *limits) for group in way)]
    found = batches(rows, *limits, overhead=overhead)
    assert found in allowed
    assert cost(rows, found, overhead) == min(cost(rows, way, overhead) for way in allowed)


def test_with_an_overhead_many_examples_keep_to_the_limits_and_come_out_the_same():
    rows = mixed(0, 500, 60)
    limits = 64, 2048, 512
    found = batches(rows, *limits, overhead=30)
    assert sorted(i for group in found for i in group) == list(range(500))
    assert all(fits(rows, group, *limits) for group in found)
    assert found == batches(list(rows), *limits, overhead=30)
    # Examples of one length, in any order, are taken as they come.
    assert batches(examples(7, 7, 7, 7), 2, overhead=30) == [[0, 1], [2, 3]]


def test_with_an_overhead_padding_is_saved_where_lengths_differ():
    rows = examples(*[6] * 7, *[9] * 30, *[14] * 9, 40)
    eight, many = batches(rows, 8), batches(rows, 64, max_tokens=512)
    found = batches(rows, 64, max_tokens=512, overhead=30)
    assert padded_tokens(rows, found) < padded_tokens(rows, eight) < padded_tokens(rows, many)
    assert len(found) < len(eight)
    # Without a cost of its own a batch has one length; a dear one has all that fit.
    assert len(batches(rows, 64, overhead=0)) == 4
    assert len(batches(rows, 64, overhead=10**6)) == 1
