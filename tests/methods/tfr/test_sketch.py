"""The sketch keeps what it promises, whatever goes into it."""

import numpy as np
import pytest
import torch

from tfrnet.methods.tfr.sketch import with_falls, with_rows


def sketched(rows: torch.Tensor, size: int, at_once: int) -> torch.Tensor:
    sketch = rows.new_zeros(0, rows.shape[1])
    for part in torch.split(rows, at_once):
        sketch = with_rows(sketch, part, size)
    return sketch


def test_few_rows_are_kept_as_they_are():
    rows = torch.arange(1.0, 9.0).view(2, 4)
    assert torch.equal(sketched(rows, 5, 1), rows)


def test_the_spare_rows_of_an_older_sketch_are_filled():
    rows = torch.arange(1.0, 9.0).view(2, 4)
    older = torch.cat([rows, torch.zeros(3, 4)])
    newer = with_rows(older, 2 * rows, 5)
    assert torch.equal(newer, torch.cat([rows, 2 * rows, torch.zeros(1, 4)]))


@pytest.mark.parametrize("at_once", [1, 3, 8])
@pytest.mark.parametrize("seed", range(4))
def test_every_direction_is_kept_within_the_bound(seed: int, at_once: int):
    """0 <= |A v|^2 - |B v|^2 <= |A|^2 / n for all unit v: the eigenvalues of A'A - B'B."""
    size = 6
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(40, 15, generator=generator, dtype=torch.float64)
    rows *= torch.logspace(0, -2, 15, dtype=torch.float64)
    sketch = sketched(rows, size, at_once)
    assert sketch.shape == (size, 15)
    difference = (rows.T @ rows - sketch.T @ sketch).numpy()
    eigenvalues = np.linalg.eigvalsh(difference)
    whole = float(rows.square().sum())
    assert eigenvalues.min() >= -1e-9 * whole
    assert eigenvalues.max() <= whole / size * (1 + 1e-9)


def test_rows_of_low_rank_are_kept_exactly():
    generator = torch.Generator().manual_seed(0)
    basis = torch.randn(3, 20, generator=generator, dtype=torch.float64)
    rows = torch.randn(50, 3, generator=generator, dtype=torch.float64) @ basis
    sketch = sketched(rows, 4, 5)
    torch.testing.assert_close(sketch.T @ sketch, rows.T @ rows)


def test_falls_of_few_rows_are_ones():
    rows = torch.arange(1.0, 9.0).view(2, 4)
    found, falls = with_falls(rows[:1], torch.ones(1), rows[1:], 5)
    assert torch.equal(found, rows)
    assert falls.tolist() == [1, 1]


def test_merged_rows_fall_as_far_as_what_they_stand_for():
    """Of low rank they are kept exactly: a move that every row falls by 1 under has their falls."""
    generator = torch.Generator().manual_seed(0)
    basis = torch.randn(2, 20, generator=generator, dtype=torch.float64)
    rows = torch.randn(50, 2, generator=generator, dtype=torch.float64) @ basis
    move = torch.zeros(20, dtype=torch.float64)
    move[0] = 1
    rows[:, 0] = 1
    found, falls = rows.new_zeros(0, 20), rows.new_zeros(0)
    for part in torch.split(rows, 5):
        found, falls = with_falls(found, falls, part, 4)
    assert len(found) == 4
    torch.testing.assert_close(found @ move, falls)
    assert float(falls.square().sum()) == pytest.approx(50)
