import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tfrnet.core.errors import InputError
from tfrnet.evaluation.metrics.intervals import wilson_interval
from tfrnet.evaluation.metrics.reemergence import (
    FlipBack,
    backward_transfer,
    backward_transfer_over_all,
    end_reemergence,
    flip_back,
    immediate,
    peak_reemergence,
    permutation_test,
    relative_recovery,
    request_matrix,
    seen_items,
    spill,
    unseen_items,
)

steady = settings(derandomize=True, deadline=None)

BEFORE = [0.875, 0.75, 1.0, 0.875]
MATRIX = [
    [0.25, 0.375, 0.5, 0.5],
    [0.75, 0.125, 0.25, 0.25],
    [0.875, 0.75, 0.125, 0.25],
    [0.875, 0.875, 0.75, 0.0],
]

# Five items of two requests: three of the first, two of the second.
REQUESTS = [1, 2, 1, 2, 1]
CORRECT = [
    [1, 1, 1, 0, 1],
    [0, 1, 0, 0, 1],
    [1, 0, 0, 0, 1],
]


@st.composite
def answers(draw):
    requests = draw(st.lists(st.integers(1, 4), min_size=1, max_size=20))
    last = max(requests)
    requests += range(1, last + 1)
    shape = (last + 1, len(requests))
    return draw(hnp.arrays(np.int64, shape, elements=st.integers(0, 1))), np.array(requests)


def close(expected):
    return pytest.approx(expected, abs=1e-9)


def test_the_matrix_by_hand():
    forgotten = immediate(BEFORE, MATRIX)
    assert forgotten.tolist() == close([0.625, 0.625, 0.875, 0.875])
    assert forgotten.mean() == close(0.75)
    assert end_reemergence(MATRIX).tolist() == close([0.25, 0.125, 0.125, 0])
    assert backward_transfer(MATRIX) == close(1 / 6)
    assert backward_transfer_over_all(MATRIX) == close(0.125)
    assert spill(BEFORE, MATRIX).tolist() == close([-0.125 / 3, -0.125, -0.125])
    assert relative_recovery(BEFORE, MATRIX) == close([0.4, 0.2, 1 / 7])


def test_the_peak_is_over_later_requests_only_and_may_be_a_fall():
    matrix = [[0.5, 0.25, 0.375], [0.9, 0.125, 0.5], [1.0, 1.0, 0.25]]
    assert peak_reemergence(matrix).tolist() == close([-0.125, 0.375, 0])
    matrix[0][1] = 0.75
    assert peak_reemergence(matrix).tolist() == close([0.25, 0.375, 0])


def test_a_single_request_has_nothing_after_it():
    assert backward_transfer([[0.5]]) is None
    assert backward_transfer_over_all([[0.5]]) == 0
    assert spill([1.0], [[0.5]]).size == 0
    assert relative_recovery([1.0], [[0.5]]) == []
    assert peak_reemergence([[0.5]]).tolist() == [0]


def test_a_request_that_forgot_nothing_has_no_relative_recovery():
    assert relative_recovery([0.5, 1.0], [[0.5, 0.75], [1.0, 0.0]]) == [None]


def test_losses_turn_the_signs_but_not_the_ratios():
    before, losses = -np.array(BEFORE), -np.array(MATRIX)
    assert immediate(before, losses).tolist() == close((-immediate(BEFORE, MATRIX)).tolist())
    assert backward_transfer(losses) == close(-1 / 6)
    assert spill(before, losses).tolist() == close((-spill(BEFORE, MATRIX)).tolist())
    assert relative_recovery(before, losses) == close(relative_recovery(BEFORE, MATRIX))


@pytest.mark.parametrize(
    ("before", "matrix"),
    [
        ([0.5], [[0.5, 0.5]]),
        ([], np.empty((0, 0))),
        ([0.5], [0.5]),
        ([0.5, 0.5], [[0.5]]),
        ([np.nan], [[0.5]]),
        ([0.5], [[np.inf]]),
    ],
)
def test_bad_matrices_are_refused(before, matrix):
    for function in (immediate, spill, relative_recovery):
        with pytest.raises(InputError):
            function(before, matrix)


def test_the_matrix_from_items():
    before, matrix = request_matrix(CORRECT, REQUESTS)
    assert before.tolist() == close([1, 0.5])
    assert matrix.tolist() == [close([1 / 3, 2 / 3]), close([0.5, 0])]


def test_seen_and_unseen_items():
    assert seen_items(CORRECT, REQUESTS).tolist() == close([1 / 3, 0.4])
    assert unseen_items(CORRECT, REQUESTS).tolist() == close([0.5])


@steady
@given(answers())
def test_items_and_matrix_agree(given_answers):
    correct, requests = given_answers
    before, matrix = request_matrix(correct, requests)
    sizes = np.bincount(requests)[1:]
    assert before @ sizes == close(correct[0].sum())
    assert sizes @ matrix == close(correct[1:].sum(axis=1))
    assert ((matrix >= 0) & (matrix <= 1)).all()
    seen, unseen = seen_items(correct, requests), unseen_items(correct, requests)
    assert len(unseen) == len(seen) - 1
    assert seen[-1] == close(correct[-1].mean())
    for t, share in enumerate(unseen):
        count = sizes[: t + 1].sum()
        total = seen[t] * count + share * (len(requests) - count)
        assert total == close(correct[t + 1].sum())


@steady
@given(answers())
def test_equal_requests_make_seen_items_the_mean_of_the_rows(given_answers):
    correct, _ = given_answers
    requests = np.tile(np.arange(1, len(correct)), 3)
    correct = np.resize(correct, (len(correct), len(requests)))
    _, matrix = request_matrix(correct, requests)
    means = [matrix[: t + 1, t].mean() for t in range(len(matrix))]
    assert seen_items(correct, requests).tolist() == close(means)


def test_flip_back_by_hand():
    # Wrong after their own request: items 1, 3 of the first and both of the second; item 1 returns.
    found = flip_back(CORRECT, REQUESTS)
    assert found == FlipBack(flipped=1, wrong=4)
    assert found.share == 0.25
    assert found.interval == close(wilson_interval(1, 4))


def test_no_item_wrong_has_no_flip_back():
    found = flip_back(np.ones((3, 2)), [1, 2])
    assert found == FlipBack(flipped=0, wrong=0)
    assert found.share is None
    assert found.interval is None


@steady
@given(answers())
def test_flip_back_counts_item_by_item(given_answers):
    correct, requests = given_answers
    wrong = [k for k, owner in enumerate(requests) if not correct[owner, k]]
    found = flip_back(correct, requests)
    assert found.wrong == len(wrong)
    assert found.flipped == sum(correct[-1, k] for k in wrong)


def returning(own):
    """Ten requests of eight items, each wrong right after one request only; and a last request."""
    requests = np.repeat(np.arange(1, 11), 8)
    fails_at = requests if own else np.random.default_rng(3).permutation(requests)
    correct = np.ones((12, 81), dtype=int)
    correct[fails_at, np.arange(80)] = 0
    return correct, np.append(requests, 11)


@pytest.mark.parametrize(("own", "low", "high"), [(True, 0, 0.002), (False, 0.05, 1)])
def test_the_permutation_test_sees_whether_requests_matter(own, low, high):
    correct, requests = returning(own)
    found = permutation_test(correct, requests, seed=0, permutations=999)
    assert found.flipped == flip_back(correct, requests).flipped
    assert low < found.p_value <= high
    # An item is given the request it fails after in 8 of 81 cases.
    assert found.expected == pytest.approx(80 * 8 / 81, abs=0.5)


def test_the_permutation_test_is_seeded_and_exact_in_a_small_case():
    # Only the first item ever fails; a third of the shuffles leave it in the first request.
    correct, requests = [[1, 1, 1], [0, 1, 1], [1, 1, 1]], [1, 2, 2]
    found = permutation_test(correct, requests, seed=5, permutations=3000)
    assert found == permutation_test(correct, requests, seed=5, permutations=3000)
    assert found != permutation_test(correct, requests, seed=6, permutations=3000)
    assert found.flipped == 1
    assert found.expected == pytest.approx(1 / 3, abs=0.03)
    assert found.p_value == close((1 + 3000 * found.expected) / 3001)


def test_nothing_to_come_back_is_no_evidence():
    assert permutation_test(np.ones((3, 2)), [1, 2], seed=0, permutations=50).p_value == 1


@pytest.mark.parametrize(
    ("correct", "requests", "message"),
    [
        (CORRECT, [1, 2, 1, 2], "one request number"),
        (CORRECT[0], REQUESTS, "one request number"),
        ([[1, np.nan]] * 3, [1, 2], "finite"),
        (CORRECT, [1, 1, 1, 1, 1], "from 1 to 2"),
        (CORRECT, [0, 1, 2, 1, 2], "from 1 to 2"),
        (CORRECT, [1, 2, 3, 1, 2], "from 1 to 2"),
        ([[1, 1]], [1, 1], "from 1 to 0"),
        (np.ones((1, 0)), [], "from 1 to 0"),
        (np.ones((3, 2, 1)), [[1], [2]], "one request number"),
    ],
)
def test_bad_items_are_refused(correct, requests, message):
    for function in (request_matrix, seen_items, unseen_items, flip_back):
        with pytest.raises(InputError, match=message):
            function(correct, requests)


def test_flip_back_needs_right_or_wrong():
    with pytest.raises(InputError, match="right"):
        flip_back([[1, 1], [0.5, 1], [1, 1]], [1, 2])
    with pytest.raises(InputError, match="permutations"):
        permutation_test(CORRECT, REQUESTS, seed=0, permutations=0)
