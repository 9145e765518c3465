import pytest
import torch

from tfrnet.methods.tfr.risk import current_risk, standardise


def t(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_median_and_mad_by_hand():
    # median 3, deviations 2 1 0 1 6, MAD 1
    assert standardise(t(1, 2, 3, 4, 9), [5]).tolist() == pytest.approx(
        [x / 1.4826 for x in (-2, -1, 0, 1, 6)]
    )


def test_median_of_an_even_count_is_the_midpoint():
    # median 2.5, deviations 1.5 0.5 0.5 7.5, MAD midpoint of 0.5 and 1.5 = 1
    assert standardise(t(1, 2, 3, 10), [4]).tolist() == pytest.approx(
        [x / 1.4826 for x in (-1.5, -0.5, 0.5, 7.5)]
    )


def test_zero_mad_falls_back_on_the_mean_deviation():
    # median 5, MAD 0, mean absolute deviation 10 / 5 = 2
    assert standardise(t(5, 5, 5, 5, 15), [5]).tolist() == pytest.approx(
        [0, 0, 0, 0, 10 / (1.2533 * 2)]
    )


def test_equal_scores_become_zero():
    assert standardise(t(7, 7, 7), [3]).tolist() == [0, 0, 0]


def test_modules_are_standardised_apart():
    both = standardise(t(1, 2, 3, 4, 9, 5, 5, 5, 5, 15), [5, 5])
    alone = torch.cat([standardise(t(1, 2, 3, 4, 9), [5]), standardise(t(5, 5, 5, 5, 15), [5])])
    assert torch.equal(both, alone)


def test_contrast_with_weights_and_margin():
    chi = current_risk(t(4, 1, -3), t(1, 2, -9), forget_weight=2, retain_weight=0.5, margin=1)
    assert chi.tolist() == [6.5, 0, 0]
