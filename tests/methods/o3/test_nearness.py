"""Scores from inner products equal the formula written out, and do not degenerate."""

import numpy as np
import pytest

from tfrnet.methods.o3.nearness import scores, scores_left_out, squared_mahalanobis


def _dense(known, x, shrinkage):
    """M^2 with the covariance made and inverted."""
    centred = known - known.mean(0)
    covariance = centred.T @ centred / len(known)
    d = known.shape[1]
    covariance = (1 - shrinkage) * covariance + shrinkage * np.trace(covariance) / d * np.eye(d)
    offset = x - known.mean(0)
    return offset @ np.linalg.inv(covariance) @ offset


def _score(known, x, shrinkage):
    cosines = known @ x / np.linalg.norm(known, axis=1) / np.linalg.norm(x)
    return -1000 * cosines.max() - _dense(known, x, shrinkage) / 2


@pytest.mark.parametrize(("n", "d"), [(8, 30), (40, 12)])
@pytest.mark.parametrize("shrinkage", [0.1, 0.5, 1.0])
def test_no_inverse_of_the_covariance_is_needed(n, d, shrinkage):
    random = np.random.default_rng(0)
    known, x = random.normal(2, 1, (n, d)), random.normal(1, 2, (5, d))
    found = squared_mahalanobis(known @ known.T, x @ known.T, (x * x).sum(1), d, shrinkage)
    assert found == pytest.approx([_dense(known, row, shrinkage) for row in x], rel=1e-9)


def test_scores_are_the_formula_at_every_layer():
    random = np.random.default_rng(1)
    known, x = random.normal(1, 1, (7, 3, 20)), random.normal(1, 1, (4, 3, 20))
    expected = [[_score(known[:, k], row[k], 0.1) for k in range(3)] for row in x]
    assert scores(known, x, 0.1) == pytest.approx(np.array(expected), rel=1e-9)


def test_a_known_vector_is_left_out_of_both_terms():
    known = np.random.default_rng(2).normal(1, 1, (6, 2, 20))
    expected = [
        [_score(np.delete(known[:, k], i, 0), known[i, k], 0.1) for k in range(2)] for i in range(6)
    ]
    assert scores_left_out(known, 0.1) == pytest.approx(np.array(expected), rel=1e-9)


def test_eight_points_in_many_dimensions_do_not_all_score_alike():
    known = np.random.default_rng(3).normal(0, 1, (8, 1, 576))
    # As they do in the source: cosine 1 with itself, and M^2 = n - 1 exactly without shrinkage.
    plain = scores(known, known, 1e-9)[:, 0]
    assert np.ptp(plain) < 1e-3 and plain == pytest.approx(np.full(8, -1003.5), abs=1e-3)
    assert np.ptp(scores_left_out(known, 0.1)[:, 0]) > 10
