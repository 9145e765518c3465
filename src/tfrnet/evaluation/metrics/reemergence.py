"""Whether forgotten items come back during later requests.

A[i, t] is the accuracy on the items of request i after request t (rows and columns start at the
first request), `before` the accuracy on them before any request. Unless stated otherwise, results
have the unit of the values. The functions of the matrix work for losses as well as accuracies:
forgetting raises a loss, so the signs are reversed, while ratios keep theirs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfrnet.core.errors import InputError
from tfrnet.evaluation.metrics.intervals import Interval, wilson_interval

Array = NDArray[np.float64]


def immediate(before: ArrayLike, matrix: ArrayLike) -> Array:
    """Return by how much each request immediately lowered the accuracy on its own items."""
    start, after = _checked(before, matrix)
    return start - after.diagonal()


def end_reemergence(matrix: ArrayLike) -> Array:
    """Return by how much each request's accuracy has risen again by the end of the stream."""
    after = _square(matrix)
    return after[:, -1] - after.diagonal()


def peak_reemergence(matrix: ArrayLike) -> Array:
    """Return the largest rise after any later request; 0 for the last request."""
    after = _square(matrix)
    peaks = [row[i + 1 :].max() - row[i] for i, row in enumerate(after[:-1])]
    return np.array([*peaks, 0.0])


def backward_transfer(matrix: ArrayLike) -> float | None:
    """Return the mean rise at the end over all requests but the last; None for a single request.

    In unlearning a positive value is bad.
    """
    rises = end_reemergence(matrix)[:-1]
    return float(rises.mean()) if rises.size else None


def backward_transfer_over_all(matrix: ArrayLike) -> float:
    """Return the same with the last request's zero in the mean, as GEM's code has it."""
    return float(end_reemergence(matrix).mean())


def spill(before: ArrayLike, matrix: ArrayLike) -> Array:
    """Return, after each request but the last, the mean change of the requests yet to come."""
    start, after = _checked(before, matrix)
    changes = after - start[:, None]
    return np.array([changes[t + 1 :, t].mean() for t in range(len(after) - 1)])


def relative_recovery(before: ArrayLike, matrix: ArrayLike) -> list[float | None]:
    """Return, for each request but the last, the share of what it forgot that is back at the end.

    None for a request with no immediate change.
    """
    rises = end_reemergence(matrix)[:-1].tolist()
    lost = immediate(before, matrix)[:-1].tolist()
    return [rise / loss if loss else None for rise, loss in zip(rises, lost, strict=True)]


def request_matrix(values: ArrayLike, requests: ArrayLike) -> tuple[Array, Array]:
    """Return `before` and the matrix from values [T + 1, items], first row before any request.

    `requests` holds the number of each item's request, from 1 to T.
    """
    rows, owners = _checked_items(values, requests)
    members = [owners == number for number in range(1, len(rows))]
    means = np.stack([rows[:, member].mean(axis=1) for member in members])
    return means[:, 0], means[:, 1:]


def seen_items(values: ArrayLike, requests: ArrayLike) -> Array:
    """Return F_seen after each request: the mean over the items requested so far."""
    rows, owners = _checked_items(values, requests)
    return np.array([rows[t, owners <= t].mean() for t in range(1, len(rows))])


def unseen_items(values: ArrayLike, requests: ArrayLike) -> Array:
    """Return F_unseen after each request but the last: the mean over the items yet to come."""
    rows, owners = _checked_items(values, requests)
    return np.array([rows[t, owners > t].mean() for t in range(1, len(rows) - 1)])


@dataclass(frozen=True)
class FlipBack:
    """How many of the items that were wrong after their own request are right at the end."""

    flipped: int
    wrong: int

    @property
    def share(self) -> float | None:
        """The share of items that came back; None if no item was wrong."""
        return self.flipped / self.wrong if self.wrong else None

    @property
    def interval(self) -> Interval | None:
        """Wilson's 95 % interval of the share."""
        return wilson_interval(self.flipped, self.wrong) if self.wrong else None


def flip_back(correct: ArrayLike, requests: ArrayLike) -> FlipBack:
    """Count the items that came back; `correct` [T + 1, items] is 1 where an item is right."""
    return _count_flips(*_checked_answers(correct, requests))


@dataclass(frozen=True)
class PermutationTest:
    """The number of items that came back, compared with randomly assigned requests."""

    flipped: int
    expected: float
    p_value: float


def permutation_test(
    correct: ArrayLike, requests: ArrayLike, seed: int, permutations: int = 10_000
) -> PermutationTest:
    """Test whether more items came back than if items were assigned to requests at random.

    The count is tested, not the share: if all items are right at the end, every permutation has the
    same share, but only with the true requests are the items wrong in between.
    """
    right, owners = _checked_answers(correct, requests)
    if permutations < 1:
        raise InputError(f"the number of permutations must be positive, not {permutations}")
    flipped = _count_flips(right, owners).flipped
    random = np.random.default_rng(seed)
    shuffled = np.array(
        [_count_flips(right, random.permutation(owners)).flipped for _ in range(permutations)]
    )
    # The observed assignment is one of the possible ones, so p is never 0.
    p_value = (1 + int((shuffled >= flipped).sum())) / (1 + permutations)
    return PermutationTest(flipped, float(shuffled.mean()), p_value)


def _count_flips(right: NDArray[np.bool_], owners: NDArray[np.int64]) -> FlipBack:
    wrong = ~right[owners, np.arange(len(owners))]
    return FlipBack(int((wrong & right[-1]).sum()), int(wrong.sum()))


def _square(matrix: ArrayLike) -> Array:
    after = np.asarray(matrix, dtype=float)
    if after.ndim != 2 or after.shape[0] != after.shape[1] or not after.size:
        raise InputError(f"a matrix of requests must be square, not of shape {after.shape}")
    if not np.isfinite(after).all():
        raise InputError("a matrix of requests must hold finite numbers")
    return after


def _checked(before: ArrayLike, matrix: ArrayLike) -> tuple[Array, Array]:
    start, after = np.asarray(before, dtype=float), _square(matrix)
    if start.shape != after.shape[:1] or not np.isfinite(start).all():
        raise InputError(f"{len(after)} finite values from before the requests are needed")
    return start, after


def _checked_items(values: ArrayLike, requests: ArrayLike) -> tuple[Array, NDArray[np.int64]]:
    rows, owners = np.asarray(values, dtype=float), np.asarray(requests)
    if rows.ndim != 2 or owners.shape != rows.shape[1:] or not np.isfinite(rows).all():
        raise InputError("every item needs a finite value in each row and one request number")
    if len(rows) < 2 or set(owners.tolist()) != set(range(1, len(rows))):
        raise InputError(f"the request numbers must be those from 1 to {len(rows) - 1}")
    return rows, owners.astype(np.int64)


def _checked_answers(
    correct: ArrayLike, requests: ArrayLike
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    rows, owners = _checked_items(correct, requests)
    if not np.isin(rows, (0, 1)).all():
        raise InputError("an item is right (1) or wrong (0), nothing in between")
    return rows == 1, owners
