"""The smallest move of the mask that lowers the log-odds of every forget example as far as asked.

Beyond the paper. With F the forget rows and R the retain rows (gradients of margins and log-odds
with respect to the mask), f the falls that are asked for, r what the retain examples have lost, and
c a cost per channel, it is the move s that minimises

    1/2 sum c s^2  +  a/2 |F s - f|^2  +  b/2 mean (R s + r)^2      over  lowest <= s <= highest

Each forget example has its own equation, so that none is forgotten twice and another not at all.
There are as many unknowns as channels but few rows, so it is solved in the rows' space, where it
is smooth, by Newton's method.
"""

from __future__ import annotations

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


def least_move(
    forget: torch.Tensor,
    falls: torch.Tensor,
    retain: torch.Tensor,
    lost: torch.Tensor,
    cost: torch.Tensor,
    bounds: Bounds,
    forget_stiffness: float,
    retain_stiffness: float,
) -> torch.Tensor:
    """Return the move; `forget` is [n, C], `retain` [N, C] and may have no row."""
    # In units of 1/sqrt(cost) the first term is that of a plain least-norm problem.
    unit = cost.rsqrt()
    retain_scale = (retain_stiffness / max(1, len(retain))) ** 0.5
    # In place: with many retain rows these are the largest tensors of a request.
    rows = torch.cat([forget, retain]).mul_(unit)
    rows[: len(forget)] *= forget_stiffness**0.5
    rows[len(forget) :] *= retain_scale
    # To lower a mask by s lowers a value by row * s, so to give back is a negative fall.
    wanted = torch.cat([falls * forget_stiffness**0.5, -lost * retain_scale])
    scaled = Bounds(bounds.lowest / unit, bounds.highest / unit)
    return least_norm(rows, wanted, scaled) * unit


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
