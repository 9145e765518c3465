import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfrnet.core.errors import InputError
from tfrnet.evaluation.metrics.intervals import (
    auc_standard_error,
    standard_error,
    t_interval,
    wilson_interval,
)

steady = settings(derandomize=True, deadline=None)

shares = st.floats(0, 1)
counts = st.integers(1, 1000)


def test_standard_error_divides_by_one_less_than_the_number():
    assert standard_error([2.0, 4.0, 9.0]) == pytest.approx(math.sqrt(13 / 3), abs=1e-9)
    assert standard_error([3.0, 3.0]) == 0
    assert standard_error([3.0]) is None
    assert standard_error([]) is None


@pytest.mark.parametrize(
    ("auc", "expected"), [(0.5, 0.020425), (0.562, 0.020233), (0.98, 0.005027)]
)
def test_auc_standard_error(auc, expected):
    assert auc_standard_error(auc, 400, 400) == pytest.approx(expected, abs=5e-7)


def test_auc_standard_error_as_hanley_and_mcneil_write_it():
    auc, positives, negatives = 0.8, 30, 70
    q1, q2 = auc / (2 - auc), 2 * auc**2 / (1 + auc)
    variance = auc * (1 - auc) + (positives - 1) * (q1 - auc**2) + (negatives - 1) * (q2 - auc**2)
    expected = math.sqrt(variance / (positives * negatives))
    assert auc_standard_error(auc, positives, negatives) == pytest.approx(expected, abs=1e-12)


@steady
@given(shares, counts, counts)
def test_auc_standard_error_is_the_same_with_the_sides_exchanged(auc, positives, negatives):
    found = auc_standard_error(auc, positives, negatives)
    assert found == pytest.approx(auc_standard_error(1 - auc, negatives, positives), abs=1e-7)
    assert 0 <= found <= 0.5 + 1e-12


@pytest.mark.parametrize(("share", "count"), [(-0.1, 5), (1.1, 5), (math.nan, 5), (0.5, 0)])
def test_shares_and_counts_that_make_no_sense_are_refused(share, count):
    with pytest.raises(InputError):
        auc_standard_error(share, 5, count)
    with pytest.raises(InputError):
        auc_standard_error(share, count, 5)


def test_wilson_by_hand():
    z = 1.959963984540054
    middle = (0.3 + z**2 / 200) / (1 + z**2 / 100)
    reach = z / (1 + z**2 / 100) * math.sqrt(0.3 * 0.7 / 100 + z**2 / 40000)
    found = wilson_interval(30, 100)
    assert found == pytest.approx((middle - reach, middle + reach), abs=1e-9)
    assert wilson_interval(0, 10).high == pytest.approx(z**2 / (10 + z**2), abs=1e-9)


@steady
@given(st.data(), counts)
def test_wilson_holds_the_share_within_bounds_and_mirrors(data, count):
    successes = data.draw(st.integers(0, count))
    low, high = wilson_interval(successes, count)
    assert -1e-12 <= low <= successes / count + 1e-12
    assert successes / count - 1e-12 <= high <= 1 + 1e-12
    mirrored = wilson_interval(count - successes, count)
    assert (1 - mirrored.high, 1 - mirrored.low) == pytest.approx((low, high), abs=1e-9)
    wider = wilson_interval(successes, count, confidence=0.99)
    assert wider.high - wider.low > high - low


@pytest.mark.parametrize(("successes", "count"), [(0, 0), (3, 2), (-1, 2)])
def test_wilson_needs_a_share(successes, count):
    with pytest.raises(InputError, match="not a share"):
        wilson_interval(successes, count)


def test_t_interval_over_three_seeds():
    mean, interval = t_interval([59.0, 60.0, 61.0])
    assert mean == 60
    # t(0.975, 2) is 4.302652729911275, the standard error 1 / sqrt(3).
    reach = 4.302652729911275 / math.sqrt(3)
    assert interval == pytest.approx((60 - reach, 60 + reach), abs=1e-9)
    assert t_interval([59.0, 60.0, 61.0], confidence=0.5)[1].high < interval.high


def test_a_single_seed_has_no_interval():
    assert t_interval([5.0]) == (5.0, None)
    with pytest.raises(InputError):
        t_interval([])
