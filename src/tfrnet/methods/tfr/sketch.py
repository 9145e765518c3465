"""A matrix sketch of bounded size: Frequent Directions (Ghashami et al., 2016).

The sketch B of rows A has at most n rows, however many A has, and keeps |A v|^2 for every direction
v up to |A|^2 / n (Frobenius norm). So a state of bounded size remembers which directions of the
mask would bring back what was forgotten.
"""

from __future__ import annotations

import torch


def with_falls(
    sketch: torch.Tensor, falls: torch.Tensor, rows: torch.Tensor, room: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a sketch that includes the rows, and its rows' falls when each of these falls by 1.

    `falls` are those of the sketch until now. They are sketched as one more column, so that rows
    that are merged keep the fall of what they stand for.
    """
    known = torch.cat([sketch, falls.unsqueeze(1)], 1)
    added = torch.cat([rows, rows.new_ones(len(rows), 1)], 1)
    both = with_rows(known, added, room)
    return both[:, :-1].contiguous(), both[:, -1].contiguous()


def with_rows(sketch: torch.Tensor, rows: torch.Tensor, room: int) -> torch.Tensor:
    """Return a sketch of at most `room` rows that includes the rows [m, C]."""
    stacked = torch.cat([sketch[sketch.any(1)], rows.to(sketch)])
    if len(stacked) <= room:
        # States of before have rows of zeros for what is to come; theirs stay as large as they are.
        spare = sketch.new_zeros(max(0, len(sketch) - len(stacked)), sketch.shape[1])
        return torch.cat([stacked, spare])
    # The right singular vectors by way of the small Gram matrix, in float64.
    wide = stacked.double()
    squares, vectors = torch.linalg.eigh(wide @ wide.T)
    squares, vectors = squares.flip(0).clamp(min=0), vectors.flip(1)
    kept = squares[:room]
    shrunk = (kept - squares[room]).clamp(min=0)
    share = torch.where(kept > 0, (shrunk / kept.clamp(min=1e-300)).sqrt(), torch.zeros_like(kept))
    directions: torch.Tensor = vectors[:, :room].T @ wide
    return (share.unsqueeze(1) * directions).to(sketch.dtype)
