import pytest

from tfrnet.evaluation.attacking.recovery import (
    area_between,
    recovery_rate,
    steps_to_half_recovery,
)


@pytest.mark.parametrize(
    ("before", "after", "untouched", "expected"),
    [
        (20.0, 50.0, 80.0, 0.5),
        (20.0, 20.0, 80.0, 0.0),
        (20.0, 80.0, 80.0, 1.0),
        (20.0, 10.0, 60.0, -0.25),
        (20.0, 100.0, 60.0, 2.0),
        (3.0, 2.5, 1.0, 0.25),
        (20.0, 50.0, 20.0, None),
    ],
)
def test_recovery_rate(before, after, untouched, expected):
    assert recovery_rate(before, after, untouched) == expected


def test_the_area_is_made_of_trapezoids_between_uneven_steps():
    unlearned = [(0, 20.0), (5, 40.0), (20, 70.0)]
    untouched = [(0, 80.0), (5, 90.0), (20, 90.0)]
    assert area_between(unlearned, untouched) == 5 * (60 + 50) / 2 + 15 * (50 + 20) / 2
    assert area_between(untouched, unlearned) == -area_between(unlearned, untouched)
    assert area_between(untouched, untouched) == 0


def test_areas_on_both_sides_cancel():
    assert area_between([(0, 0.0), (2, 2.0)], [(0, 1.0), (2, 1.0)]) == 0


@pytest.mark.parametrize("other", [[(0, 1.0), (10, 1.0)], [(0, 1.0)], []])
def test_curves_at_different_steps_are_refused(other):
    with pytest.raises(ValueError, match="different steps"):
        area_between([(0, 1.0), (5, 1.0)], other)


@pytest.mark.parametrize(
    ("curve", "expected"),
    [
        ([(0, 20.0), (10, 40.0), (20, 60.0)], 15.0),
        ([(0, 20.0), (10, 50.0), (20, 10.0)], 10.0),
        ([(0, 20.0), (5, 35.0), (10, 10.0), (30, 90.0)], 20.0),
        ([(0, 60.0), (10, 80.0)], 0.0),
        ([(5, 60.0), (10, 80.0)], 5.0),
        ([(0, 20.0), (10, 49.0)], None),
        ([], None),
    ],
)
def test_steps_to_half_recovery(curve, expected):
    assert steps_to_half_recovery(curve, 20.0, 80.0) == expected


def test_half_recovery_of_a_metric_that_falls():
    assert steps_to_half_recovery([(0, 3.0), (10, 1.0)], before=3.0, untouched=1.0) == 5.0


def test_where_nothing_was_forgotten_nothing_recovers():
    assert steps_to_half_recovery([(0, 20.0), (10, 40.0)], 20.0, 20.0) is None
