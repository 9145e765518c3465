"""The smallest move of the mask that lowers the log-odds of every forget example as far as asked.

Beyond the paper. With rows F_k of several kinds (gradients of margins and log-odds with respect to
the mask), the falls f_k that are asked of them, their stiffness a_k, and a cost c per channel, it
is the move s that minimises

    1/2 sum c s^2  +  sum_k a_k/2 |F_k s - f_k|^2      over  lowest <= s <= highest

Each forget example has its own equation, so that none is forgotten twice and another not at all.
There are as many unknowns as channels but few rows, so it is solved in the rows' space, where it
is smooth, by Newton's method.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from scipy.optimize import brentq

_ITERATIONS = 200
_BLOCK = 1 << 16
_TOLERANCE = 1e-8
# A step whose end is this much flatter than its start is gone whole.
_FLAT = 0.1
_SHORTEST = 1e-30


@dataclass(frozen=True)
class Bounds:
    """The least and the most that each channel may be lowered."""

    lowest: torch.Tensor
    highest: torch.Tensor

    def within(self, move: torch.Tensor) -> torch.Tensor:
        """Return the move with every channel inside its bounds."""
        return torch.minimum(torch.maximum(move, self.lowest), self.highest)

    def only(self, channels: torch.Tensor) -> Bounds:
        """Return the bounds with all but the given channels held where they are."""
        free = torch.zeros_like(self.lowest)
        free[channels] = 1
        return Bounds(self.lowest * free, self.highest * free)


@dataclass(frozen=True)
class Rows:
    """Gradients [n, C] of some values, how far these are to fall [n], and how strictly.

    To lower a mask by s lowers a value by its row times s; to give something back is a negative
    fall, to hold it in place none.
    """

    gradients: torch.Tensor
    falls: torch.Tensor
    stiffness: float


def least_move(wanted: Sequence[Rows], cost: torch.Tensor, bounds: Bounds) -> torch.Tensor:
    """Return how far each channel is lowered."""
    # In units of 1/sqrt(cost) the first term is that of a plain least-norm problem.
    unit = cost.rsqrt()
    # In place: with many retain rows these are the largest tensors of a request.
    rows = torch.cat([part.gradients for part in wanted]).mul_(unit)
    start = 0
    for part in wanted:
        rows[start : start + len(part.falls)] *= part.stiffness**0.5
        start += len(part.falls)
    falls = torch.cat([part.falls * part.stiffness**0.5 for part in wanted])
    scaled = Bounds(bounds.lowest / unit, bounds.highest / unit)
    return least_norm(rows, falls, scaled) * unit


def least_norm(rows: torch.Tensor, wanted: torch.Tensor, bounds: Bounds) -> torch.Tensor:
    """Return the v within bounds that minimises |v|^2 + |rows v - wanted|^2.

    At the solution v = clip(rows^T y) with y = wanted - rows v. That equation in y is the gradient
    of a convex function, piecewise quadratic: Newton's steps on it end after a few. In float64,
    since the rows of real models are so alike and so steep that their products span sixteen orders
    of magnitude: in float32 the matrix of a Newton step is not even positive.
    """
    tall, wanted = _Tall(rows), wanted.double()
    wide = Bounds(bounds.lowest.double(), bounds.highest.double())
    movable = wide.lowest < wide.highest
    identity = torch.eye(len(wanted), dtype=wanted.dtype, device=wanted.device)
    enough = _TOLERANCE * float(wanted.norm())
    y, best, found = torch.zeros_like(wanted), math.inf, torch.zeros_like(wide.lowest)
    for _ in range(_ITERATIONS):
        pull = tall.transposed_times(y)
        v = wide.within(pull)
        missed = wanted - tall.times(v)
        # Should so many steps be too few, the best of them is still better than no move.
        if (value := float(v @ v + missed @ missed)) < best:
            best, found = value, v
        slope = y - missed
        if float(slope.norm()) <= enough:
            break
        free = movable & (pull >= wide.lowest) & (pull <= wide.highest)
        towards = -torch.linalg.solve_ex(identity + tall.gram(free), slope).result
        change = tall.transposed_times(towards)
        length = _length(_Line(y, towards, pull, change, wanted, wide))
        if length == 0:
            break
        y = y + length * towards
    return found.to(rows)


@dataclass(frozen=True)
class _Line:
    """The function of y on the way from y towards another."""

    y: torch.Tensor
    towards: torch.Tensor
    pull: torch.Tensor
    change: torch.Tensor
    wanted: torch.Tensor
    bounds: Bounds

    def rise(self, length: float) -> float:
        """Return how steeply it rises after so much of the way."""
        y, pull = self.y + length * self.towards, self.pull + length * self.change
        return float(self.towards @ (y - self.wanted) + self.change @ self.bounds.within(pull))


def _length(line: _Line) -> float:
    """Return how much of a Newton step to go: all of it, or to where the function rises again.

    Nothing where it does not fall at all: what is left to gain is less than rounding, or a number
    is not finite.
    """
    first, last = line.rise(0.0), line.rise(1.0)
    if not first < 0:
        return 0.0
    if last <= _FLAT * -first:
        return 1.0
    return float(brentq(line.rise, 0.0, 1.0, xtol=_SHORTEST, rtol=1e-3))


class _Tall:
    """A matrix [n, C] with many more columns than rows, multiplied in float64 block by block."""

    def __init__(self, matrix: torch.Tensor) -> None:
        self._blocks = torch.split(matrix, _BLOCK, dim=1)

    def times(self, x: torch.Tensor) -> torch.Tensor:
        parts = zip(self._blocks, torch.split(x, _BLOCK), strict=True)
        return torch.stack([block.double() @ part for block, part in parts]).sum(0)

    def transposed_times(self, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([y @ block.double() for block in self._blocks])

    def gram(self, chosen: torch.Tensor) -> torch.Tensor:
        """Return matrix diag(chosen) matrix^T."""
        parts = zip(self._blocks, torch.split(chosen, _BLOCK), strict=True)
        picked = (block[:, part].double() for block, part in parts)
        return torch.stack([part @ part.T for part in picked]).sum(0)
