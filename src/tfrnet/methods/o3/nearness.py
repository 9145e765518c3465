"""How near a prompt is to known ones, per layer, computed from inner products.

A score is -1000 * (largest cosine) - M^2 / 2, M^2 = (z - mu)' S^-1 (z - mu), as in the original
code. S is shrunk: (1 - a) * (empirical covariance) + a * (its mean variance) * I. Without that, and
without leaving a known prompt out of its own score, all known prompts would get the same score if
there are more dimensions than prompts.

There are far more dimensions (d) than prompts (n), so the d x d matrix S is never formed: by
Woodbury's identity M^2 depends only on the n x n inner products.
"""

from __future__ import annotations

import numpy as np

Array = np.ndarray  # all float64

_COSINE = 1000.0
_TINY = 1e-30  # if all vectors are equal there is no variance to divide by


def squared_mahalanobis(
    gram: Array, cross: Array, own: Array, dimensions: int, shrinkage: float
) -> Array:
    """Return M^2 of m vectors to n known ones. [m].

    `gram` [n, n] are the inner products of the known, `cross` [m, n] of each vector with them,
    `own` [m] of each vector with itself.
    """
    n = len(gram)
    column, total = gram.mean(0), gram.mean()
    centred = gram - column - column[:, None] + total
    offset = cross - cross.mean(1, keepdims=True) - column + total
    length = own - 2 * cross.mean(1) + total
    # S = scatter * X'X + ridge * I, X the centred known vectors.
    scatter = (1 - shrinkage) / n
    ridge = max(shrinkage * np.trace(centred) / n / dimensions, _TINY)
    inside = np.linalg.solve(centred * scatter / ridge + np.eye(n), offset.T).T
    return (length - scatter / ridge * (offset * inside).sum(1)) / ridge  # type: ignore[no-any-return]


def scores(known: Array, vectors: Array, shrinkage: float) -> Array:
    """Return the scores of m vectors at every layer. [n, L, d], [m, L, d] -> [m, L]."""
    columns = []
    for layer in range(known.shape[1]):
        z, x = known[:, layer], vectors[:, layer]
        columns.append(_scores(z @ z.T, x @ z.T, (x * x).sum(1), z.shape[1], shrinkage))
    return np.stack(columns, 1)


def scores_left_out(known: Array, shrinkage: float) -> Array:
    """Return each known vector's leave-one-out scores. [n, L, d] -> [n, L]."""
    columns = []
    for layer in range(known.shape[1]):
        z = known[:, layer]
        gram = z @ z.T
        cosines = _cosines(gram, gram.diagonal(), gram)
        np.fill_diagonal(cosines, -1.0)
        distance = _left_out_mahalanobis(gram, z.shape[1], shrinkage)
        columns.append(-_COSINE * cosines.max(1) - distance / 2)
    return np.stack(columns, 1)


def _left_out_mahalanobis(gram: Array, dimensions: int, shrinkage: float) -> Array:
    """Return M^2 of each of n vectors to the n - 1 others. [n].

    Leaving a vector with offset v from the mean out multiplies its offset by n / (n - 1) and takes
    v v' n / (n - 1) off the scatter. So one decomposition of the inner products and the
    Sherman-Morrison identity give all n results.
    """
    n = len(gram)
    column = gram.mean(0)
    centred = gram - column - column[:, None] + gram.mean()
    values, vectors = np.linalg.eigh(centred)
    values = values.clip(min=0)
    grown = n / (n - 1)
    traces = np.trace(centred) - grown * centred.diagonal()
    scatter = (1 - shrinkage) / (n - 1)
    ridge = np.maximum(shrinkage * traces / (n - 1) / dimensions, _TINY)
    with_itself = (vectors**2 * values / (scatter * values + ridge[:, None])).sum(1)
    return grown**2 * with_itself / (1 - scatter * grown * with_itself)  # type: ignore[no-any-return]


def _scores(gram: Array, cross: Array, own: Array, dimensions: int, shrinkage: float) -> Array:
    cosine = _cosines(cross, own, gram).max(1)
    distance = squared_mahalanobis(gram, cross, own, dimensions, shrinkage)
    return -_COSINE * cosine - distance / 2  # type: ignore[no-any-return]


def _cosines(cross: Array, own: Array, gram: Array) -> Array:
    lengths = np.sqrt(np.outer(own, gram.diagonal()))
    return cross / np.maximum(lengths, _TINY)
