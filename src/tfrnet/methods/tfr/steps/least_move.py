"""The smallest move of the mask that lowers the log-odds of every forget example as far as asked.

Beyond the paper. With rows F_k of several kinds (gradients of margins and log-odds with respect to
the mask), the falls f_k that are asked of them, their stiffness a_k, and a cost c per channel, it
is the move s that minimises

    1/2 sum c s^2  +  sum_k a_k/2 |F_k s - f_k|^2      over  lowest <= s <= highest

Each forget example has its own equation, so no example is forgotten at the expense of another.
There are as many unknowns as channels but few rows, so the dual problem over the rows, which is
smooth, is solved by Newton's method.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from scipy.optimize import brentq

_ITERATIONS = 200
# Columns, and numbers, that are in float64 at a time: the latter fit into a processor's cache.
_BLOCK = 1 << 16
_PART = 1 << 20
_TOLERANCE = 1e-8
# A full Newton step is taken if the slope at its end is this much flatter than at its start.
_FLAT = 0.1
_SHORTEST = 1e-30


@dataclass(frozen=True)
class Bounds:
    """The minimum and maximum by which each channel may be lowered."""

    lowest: torch.Tensor
    highest: torch.Tensor

    def within(self, move: torch.Tensor) -> torch.Tensor:
        """Return the move clipped to the bounds."""
        return torch.minimum(torch.maximum(move, self.lowest), self.highest)

    def only(self, channels: torch.Tensor) -> Bounds:
        """Return the bounds with all but the given channels fixed."""
        free = torch.zeros_like(self.lowest)
        free[channels] = 1
        return Bounds(self.lowest * free, self.highest * free)


@dataclass(frozen=True)
class Rows:
    """Gradients [n, C] of some values, the wanted falls [n] of these, and how strictly.

    Lowering the mask by s lowers a value by its row times s. A negative fall raises the value, a
    fall of 0 holds it in place.
    """

    gradients: torch.Tensor
    falls: torch.Tensor
    stiffness: float


def least_move(wanted: Sequence[Rows], cost: torch.Tensor, bounds: Bounds) -> torch.Tensor:
    """Return how far each channel is lowered."""
    # Scaled by sqrt(cost), the problem becomes a plain least-norm problem.
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

    At the solution v = clip(rows^T y) with y = wanted - rows v. That is the gradient in y of a
    convex, piecewise quadratic function, which Newton's method minimises in a few steps. It runs in
    float64: the rows of real models are so similar that in float32 the Newton matrix is not even
    positive definite.
    """
    tall, wanted = _Tall(rows), wanted.double()
    wide = Bounds(bounds.lowest.double(), bounds.highest.double())
    movable = wide.lowest < wide.highest
    identity = torch.eye(len(wanted), dtype=wanted.dtype, device=wanted.device)
    enough = _TOLERANCE * float(wanted.norm())
    y, best, found = torch.zeros_like(wanted), math.inf, torch.zeros_like(wide.lowest)
    pull = torch.zeros_like(found)  # rows^T y
    for _ in range(_ITERATIONS):
        v = wide.within(pull)
        missed = wanted - tall.times(v)
        # If the steps did not suffice, the last one is still better than no move.
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
        y, pull = y + length * towards, pull + length * change
    return found.to(rows)


@dataclass(frozen=True)
class _Line:
    """The dual function along a line."""

    y: torch.Tensor
    towards: torch.Tensor
    pull: torch.Tensor
    change: torch.Tensor
    wanted: torch.Tensor
    bounds: Bounds

    def rise(self, length: float) -> float:
        """Return the slope at a point of the line."""
        y, pull = self.y + length * self.towards, self.pull + length * self.change
        return float(self.towards @ (y - self.wanted) + self.change @ self.bounds.within(pull))


def _length(line: _Line) -> float:
    """Return the length of a Newton step: 1, or up to where the function starts to rise.

    0 if it does not fall at all: the remaining gain is below rounding, or a number is not finite.
    """
    first, last = line.rise(0.0), line.rise(1.0)
    if not first < 0:
        return 0.0
    if last <= _FLAT * -first:
        return 1.0
    return float(brentq(line.rise, 0.0, 1.0, xtol=_SHORTEST, rtol=1e-3))


class _Tall:
    """A matrix [n, C] with many more columns than rows, multiplied in float64 part by part."""

    def __init__(self, matrix: torch.Tensor) -> None:
        self._rows = torch.split(matrix, max(1, _PART // matrix.shape[1]))
        self._columns = torch.split(matrix, _BLOCK, dim=1)
        self._chosen: torch.Tensor | None = None
        self._gram = torch.empty(0)

    def times(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([rows.double() @ x for rows in self._rows])

    def transposed_times(self, y: torch.Tensor) -> torch.Tensor:
        found = y.new_zeros(self._rows[0].shape[1])
        for rows, part in zip(self._rows, torch.split(y, len(self._rows[0])), strict=True):
            found += part @ rows.double()
        return found

    def gram(self, chosen: torch.Tensor) -> torch.Tensor:
        """Return matrix diag(chosen) matrix^T; what the last one has in common is not done anew."""
        if (last := self._chosen) is not None and int((chosen ^ last).sum()) < int(chosen.sum()):
            entered, left = self._gram_of(chosen & ~last), self._gram_of(last & ~chosen)
            self._gram = self._gram + entered - left
        else:
            self._gram = self._gram_of(chosen)
        self._chosen = chosen
        return self._gram

    def _gram_of(self, chosen: torch.Tensor) -> torch.Tensor:
        parts = zip(self._columns, torch.split(chosen, _BLOCK), strict=True)
        # Picking all columns would copy them for nothing.
        picked = (block if bool(part.all()) else block[:, part] for block, part in parts)
        wide = (block.double() for block in picked)
        return torch.stack([block @ block.T for block in wide]).sum(0)
