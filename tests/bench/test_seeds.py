"""Means over seeds, and what is said where there are none."""

from __future__ import annotations

import pytest

from tfrnet_bench.seeds import Seeds, combine, count_text

ALL = frozenset({0, 1, 2})


def seeds(*values, failed=()):
    return Seeds(dict(enumerate(values)), ALL, frozenset(failed))


def test_mean_and_half_width_by_hand():
    # Standard deviation 2, standard error 2 / sqrt(3), Student's 97.5 % point of 2 degrees 4.3027.
    assert seeds(10, 12, 14).text() == "12.00 ± 4.97"
    assert seeds(10, 12, 14).text(1) == "12.0 ± 5.0"


def test_one_seed_has_no_interval():
    assert Seeds({0: 3.0}, frozenset({0})).text() == "3.00"


def test_seeds_that_are_missing_are_counted():
    # Standard error 1, Student's 97.5 % point of 1 degree 12.7062.
    assert seeds(10, 12).text() == "11.00 ± 12.71 [n = 2 of 3]"
    assert seeds(10, 12, failed=[2]).text() == "11.00 ± 12.71 [n = 2 of 3, 1 failed]"
    assert seeds(10, None, 12).text() == "11.00 ± 12.71 [n = 2 of 3]"


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (seeds(), "not run"),
        (seeds(failed=[0]), "failed"),
        (seeds(None, None, None), "undefined"),
    ],
)
def test_no_number_says_why(found, text):
    assert found.text() == text


def test_what_rounds_to_zero_has_no_sign():
    assert seeds(-1e-9, -1e-9, -1e-9).text() == "0.00 ± 0.00"


def test_combined_numbers_are_of_the_seeds_that_all_parts_have():
    both = combine([seeds(1, 2, 3), seeds(3, 4)])
    assert both.values == {0: 2, 1: 3}
    assert both.text().endswith("[n = 2 of 3]")
    assert seeds(5, 7, 9).minus(seeds(1, 1, 1)).values == {0: 4, 1: 6, 2: 8}
    assert combine([seeds(1, 5, 2), seeds(4, 3, 1)], max).values == {0: 4, 1: 5, 2: 2}


def test_a_combination_with_a_part_that_never_ran_has_not_run():
    assert combine([seeds(1, 2, 3), seeds(failed=[0])]).text() == "failed"
    assert combine([seeds(1, 2, 3), seeds(failed=[0]), seeds()]).text() == "not run"


def test_a_mean_over_other_settings_says_so():
    other = Seeds({0: 3.0, 1: 3.0}, ALL, frozenset({2}), mixed=True)
    assert other.text() == "3.00 ± 0.00 [n = 2 of 3, 1 failed, settings differ]"
    assert seeds(1, 1, 1).minus(other).text().endswith("settings differ]")
    assert Seeds({0: 3.0}, frozenset({0}), mixed=True).text() == "3.00 [settings differ]"


def test_counts_are_told_apart_where_they_differ():
    assert count_text([seeds(1, 2, 3), seeds(1, 2, 3)]) == "3"
    assert count_text([seeds(1, 2, 3), seeds(1)]) == "3 / 1"
