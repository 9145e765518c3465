"""The importance of MLP channels, accumulated during backward passes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch

from tfrnet.core.errors import InputError
from tfrnet.methods.llm_eraser.pruning import PrunedEffect
from tfrnet.methods.llm_eraser.scores import CHANNEL_DIM, salience


def refuse_unscored(effect: PrunedEffect, layers: Sequence[int]) -> None:
    """Refuse layers that the model does not have, or whose weights have no gradient."""
    for number in layers:
        if number >= len(effect.mlps):
            raise InputError(
                f"layers names layer {number}, but {type(effect.model).__name__} has layers 0 to "
                f"{len(effect.mlps) - 1}"
            )
        for part in CHANNEL_DIM:
            name = effect.mlps[number].projection(part)
            weight = effect.base_weight(name)
            if weight.is_meta or not weight.is_floating_point():
                why = "offloaded" if weight.is_meta else f"quantised ({weight.dtype})"
                raise InputError(f"{name} is {why}, so its channels cannot be scored by gradients")


@contextmanager
def gathered_importance(
    effect: PrunedEffect, layers: Sequence[int], passes: int
) -> Iterator[torch.Tensor]:
    """Yield I(j) of all channels, flat, to be filled by `passes` backward passes in the block.

    I(j) sums |w * dL/dw| over rows j of gate and up and column j of down, with the adapter merged
    into w; channels of other layers have 0. L is summed over all passes, and |.| needs its full
    gradient: with one pass, a weight's gradient is reduced and freed at once; with more, float32
    sums of the MLP gradients are kept until the last (4 bytes per weight). The score then does not
    depend on the batch size.
    """
    importance = torch.zeros(effect.channels)
    parts = effect.split(importance)
    with ExitStack() as stack:
        for number in dict.fromkeys(layers):
            for part, dim in CHANNEL_DIM.items():
                name = effect.mlps[number].projection(part)
                hook = _ImportanceHook(effect, name, dim, passes, parts[number])
                stack.callback(hook.release)
        yield importance


class _ImportanceHook:
    """Adds one weight's part to its layer's importance."""

    def __init__(
        self, effect: PrunedEffect, name: str, dim: int, passes: int, into: torch.Tensor
    ) -> None:
        self.effect = effect
        self.name = name
        self.dim = dim
        self.left = passes
        self.into = into
        self.sum: torch.Tensor | None = None
        self.weight = effect.base_weight(name)
        self.trained = self.weight.requires_grad
        self.weight.requires_grad_(True)
        self.handle = self.weight.register_post_accumulate_grad_hook(self)  # type: ignore[no-untyped-call]

    @torch.no_grad()
    def __call__(self, weight: torch.Tensor) -> None:
        gradient = weight.grad
        assert gradient is not None
        weight.grad = None
        self.left -= 1
        if self.sum is not None:
            gradient = self.sum.add_(gradient)
        if self.left:
            self.sum = gradient.to(torch.promote_types(gradient.dtype, torch.float32))
        else:
            self.sum = None
            merged = self.effect.merged_weight(self.name)
            self.into += salience(merged, gradient, self.dim).to(self.into)

    def release(self) -> None:
        """Remove the hook."""
        self.handle.remove()
        self.weight.grad = None
        self.weight.requires_grad_(self.trained)
        self.sum = None
