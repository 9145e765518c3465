"""Padding: token rows of different lengths as one tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch

PaddingSide = Literal["right", "left"]


def padded(
    rows: Sequence[Sequence[int]], side: PaddingSide = "right", token: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids and attention mask of rows padded to the longest. Both are [B, N], on the CPU.

    The mask hides the padding, so any token will do.
    """
    width = max(map(len, rows))
    ids = torch.full((len(rows), width), token, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for i, row in enumerate(rows):
        where = slice(width - len(row), width) if side == "left" else slice(0, len(row))
        ids[i, where] = torch.tensor(row, dtype=torch.long)
        mask[i, where] = 1
    return ids, mask


def without_first(mask: torch.Tensor) -> torch.Tensor:
    """Return an attention mask, padded on the right, without the first of several tokens. [B, N].

    In many models its hidden state is huge whatever the token, so a mean with it reflects little
    but the prompt's length.
    """
    rest = mask.clone()
    rest[mask.sum(1) > 1, 0] = 0
    return rest
