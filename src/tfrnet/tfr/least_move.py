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

from collections.abc import Sequence
from dataclasses import dataclass

import torch

_ITERATIONS = 50
_BLOCK = 32
_TOLERANCE = 1e-5
_SHORTEST_STEP = 1e-6


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
    of a convex function, piecewise quadratic: Newton's steps on it end after a few.
    """

    def at(y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        pull = rows.T @ y
        v = bounds.within(pull)
        value = y @ (y / 2 - wanted) + (v * (pull - v / 2)).sum()
        return pull, v, value

    movable = bounds.lowest < bounds.highest
    y = torch.zeros_like(wanted)
    pull, v, value = at(y)
    identity = torch.eye(len(wanted), dtype=rows.dtype, device=rows.device)
    for _ in range(_ITERATIONS):
        slope = y - wanted + rows @ v
        if float(slope.norm()) <= _TOLERANCE * float(wanted.norm()):
            break
        free = (movable & (pull >= bounds.lowest) & (pull <= bounds.highest)).to(rows)
        towards = torch.linalg.solve(identity + _gram(rows, free), slope)
        length, gain = 1.0, slope @ towards
        while length > _SHORTEST_STEP:
            trial = y - length * towards
            found = at(trial)
            if found[2] <= value - 1e-4 * length * gain:
                break
            length /= 2
        else:
            # What is left to gain is less than rounding.
            break
        y, (pull, v, value) = trial, found
    return v


def _gram(rows: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return rows diag(weights) rows^T without a second copy of all the rows."""
    return torch.cat([(part * weights) @ rows.T for part in torch.split(rows, _BLOCK)])
