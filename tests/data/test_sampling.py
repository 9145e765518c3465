from collections import Counter

import pytest

from tfrnet.data.sampling import sample_by_group, sample_indices


def test_a_small_population_is_taken_whole():
    assert sample_indices(3, 5, "x", 0) == [0, 1, 2]


def test_the_sample_is_the_same_everywhere():
    assert sample_indices(100, 6, "retain", 0, 0) == [1, 20, 32, 41, 58, 77]


def test_samples_are_distinct_sorted_and_depend_on_every_key():
    one = sample_indices(1000, 50, "retain", 0, 0)
    assert one == sorted(set(one))
    assert len(one) == 50
    others = [
        sample_indices(1000, 50, *key)
        for key in (("retain", 0, 1), ("retain", 1, 0), ("guard", 0, 0))
    ]
    assert all(other != one for other in others)


def test_every_index_is_about_equally_likely():
    counts = [0] * 20
    for seed in range(2000):
        for i in sample_indices(20, 5, "x", seed):
            counts[i] += 1
    assert all(400 < count < 600 for count in counts)


@pytest.mark.parametrize("name", ["", "a"])
def test_one_group_gives_the_plain_sample(name):
    for size in (1, 7, 30, 50):
        for spare in (True, False):
            drawn = sample_by_group([name] * 30, size, "guard", 3, spare=spare)
            assert drawn == sample_indices(30, size, "guard", 3)


def test_groups_give_in_turn():
    groups = ["a"] * 100 + ["b"] * 10 + [""] * 3

    def drawn(size):
        return Counter(groups[i] for i in sample_by_group(groups, size, "guard", 0))

    assert drawn(6) == {"a": 2, "b": 2, "": 2}
    assert drawn(16) == {"a": 7, "b": 6, "": 3}
    assert drawn(60) == {"a": 47, "b": 10, "": 3}


def test_groups_keep_half_while_others_have_more_where_what_is_drawn_will_be_missing():
    groups = ["a"] * 100 + ["b"] * 10 + [""] * 3

    def drawn(size):
        return Counter(groups[i] for i in sample_by_group(groups, size, "guard", 0, spare=True))

    assert drawn(6) == {"a": 2, "b": 2, "": 2}
    assert drawn(16) == {"a": 9, "b": 5, "": 2}
    assert drawn(57) == {"a": 50, "b": 5, "": 2}
    assert drawn(60) == {"a": 51, "b": 6, "": 3}
    assert drawn(113) == {"a": 100, "b": 10, "": 3}


def test_a_sample_by_group_is_seeded_and_sorted():
    groups = ["a", "b"] * 50
    one = sample_by_group(groups, 20, "guard", 0)
    assert one == sorted(set(one)) == sample_by_group(groups, 20, "guard", 0)
    assert one != sample_by_group(groups, 20, "guard", 1)
