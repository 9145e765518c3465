"""A mask with one row per example, whose gradient is that of each example by itself.

Shapes: B examples, N token positions, D channels of one projection.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tfrnet.models.parts import FlattenedBatchError

# For mask values below this, the backward pass keeps the activation before the mask; for others it
# divides the masked activation by the mask.
SAFE_DIVISOR = 1e-2


class PerExample:
    """Forward hook that multiplies example b of the output by row b of a leaf."""

    def __init__(
        self,
        leaf: torch.Tensor,
        faint: torch.Tensor | None,
        length: int,
        weights: torch.Tensor | None,
        routed: bool,
        is_added_to: bool,
    ) -> None:
        self.routed = routed
        self.is_added_to = is_added_to
        self.leaf = leaf
        self.faint = faint
        self.length = length
        self.weights = weights

    def __call__(self, module: nn.Module, inputs: Any, output: torch.Tensor) -> torch.Tensor:
        """Return the output with each example scaled by its own row of the mask."""
        batch = self.leaf.shape[0]
        shape = output.shape
        if not self.routed and output.dim() == 2 and shape[0] == batch * self.length:
            output = output.view(batch, self.length, -1)
        elif output.dim() == 2 and batch == 1 and self.weights is None:
            output = output.unsqueeze(0)
        elif output.dim() > 3 and shape[0] == batch and shape[1:-1].numel() == self.length:
            # DeepSeek's latent attention has one more dimension, for what its heads share.
            output = output.view(batch, self.length, -1)
        elif output.dim() != 3 or shape[0] != batch:
            raise FlattenedBatchError(
                f"a {type(module).__name__} gave an output of shape {tuple(shape)} for a batch of "
                f"{batch} x {self.length} tokens, which cannot be scored per example"
            )
        masked: torch.Tensor = _ScaleRows.apply(  # type: ignore[no-untyped-call]
            output, self.leaf, self.faint, self.weights, self.is_added_to
        )
        return masked.view(shape)


class _ScaleRows(torch.autograd.Function):
    """h = a * m with one mask row per example, using almost no extra memory.

    The gradient of the mask is the sum of a * dL/dh over tokens. Instead of keeping a, the backward
    pass computes it as h / m, since the next operation usually keeps h anyway. Only for the few
    channels with m near 0, where the division would be inexact, is a kept. So dormant channels have
    exact scores.
    """

    @staticmethod
    def forward(
        ctx: Any,
        a: torch.Tensor,
        leaf: torch.Tensor,
        faint: torch.Tensor | None,
        weights: torch.Tensor | None,
        is_added_to: bool,
    ) -> torch.Tensor:
        faint_a = None if faint is None else a[..., faint]
        row = leaf.to(a.dtype).unsqueeze(1)
        if a._is_view():
            h = a * row
        else:
            # Nothing else uses a projection's output yet, so it can be scaled in place.
            h = a.mul_(row)
            ctx.mark_dirty(a)
        ctx.save_for_backward(h.clone() if is_added_to else h, leaf, faint, faint_a, weights)
        return h

    @staticmethod
    def backward(
        ctx: Any, gradient: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, None, None, None]:
        h, leaf, faint, faint_a, weights = ctx.saved_tensors
        for_input = gradient * leaf.to(gradient.dtype).unsqueeze(1)
        wide = gradient.to(leaf.dtype)
        if weights is not None:
            wide = wide * weights.to(wide).unsqueeze(-1)
        # If h has a narrower dtype, it is converted while it is read, without a copy.
        for_mask = (wide * h).sum(1, dtype=leaf.dtype)
        for_mask /= leaf.clamp(min=SAFE_DIVISOR)
        if faint is not None:
            for_mask[:, faint] = (wide[..., faint] * faint_a.to(leaf.dtype)).sum(1)
        return for_input, for_mask, None, None, None
