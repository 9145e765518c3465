"""A matrix sketch of fixed size: Frequent Directions (Ghashami et al., 2016).

The sketch B of rows A has n rows, however many A has, and keeps |A v|^2 for every direction v up to
|A|^2 / n (Frobenius norm). So a state of fixed size remembers which directions of the mask would
bring back what was forgotten.
"""

from __future__ import annotations

import torch


def with_rows(sketch: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return a sketch of the same size [n, C] that includes the rows [m, C]."""
    used = sketch[sketch.any(1)]
    stacked = torch.cat([used, rows.to(sketch)])
    room = len(sketch)
    if len(stacked) <= room:
        result = torch.zeros_like(sketch)
        result[: len(stacked)] = stacked
        return result
    # The right singular vectors by way of the small Gram matrix, in float64.
    wide = stacked.double()
    squares, vectors = torch.linalg.eigh(wide @ wide.T)
    squares, vectors = squares.flip(0).clamp(min=0), vectors.flip(1)
    kept = squares[:room]
    shrunk = (kept - squares[room]).clamp(min=0)
    share = torch.where(kept > 0, (shrunk / kept.clamp(min=1e-300)).sqrt(), torch.zeros_like(kept))
    directions: torch.Tensor = vectors[:, :room].T @ wide
    return (share.unsqueeze(1) * directions).to(sketch.dtype)
