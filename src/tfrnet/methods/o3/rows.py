"""Scaling an adapter's output row by row, and reading the rows of a call."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tfrnet.core.errors import InputError


class RowWeights:
    """Multiplies what some modules put out by one weight per row; without weights, by nothing."""

    def __init__(self) -> None:
        self.weights: torch.Tensor | None = None
        self._positions = 0
        self._handles: list[Any] = []

    def watch(self, modules: Iterable[nn.Module]) -> None:
        """Act on modules until `release`."""
        self._handles += [module.register_forward_hook(self._scale) for module in modules]

    def release(self) -> None:
        """Let go of the modules."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def set(self, weights: torch.Tensor | None, positions: int = 0) -> None:
        """Take the weights of the rows of the next pass, each of so many positions."""
        self.weights = weights
        self._positions = positions

    def _scale(self, module: nn.Module, inputs: Any, output: torch.Tensor) -> torch.Tensor | None:
        if self.weights is None:
            return None
        weights = self.weights
        if output.dim() == 2 and len(output) == len(weights) * self._positions:
            # Some mixtures of experts lay the rows one after another.
            weights = weights.repeat_interleave(self._positions)
        elif len(output) != len(weights):
            raise InputError(
                "o3 cannot tell the rows of a layer's input apart; leave the layer out of "
                "target_modules"
            )
        scale = weights.to(output).view(-1, *[1] * (output.dim() - 1))
        # 0 means off, also for an adapter that has diverged, where a product would be no number.
        return (output * scale).masked_fill(scale == 0, 0.0)


@dataclass(frozen=True)
class Call:
    """What a model was called with, as far as it says what the rows are."""

    input_ids: torch.Tensor
    attention_mask: torch.Tensor | None
    goes_on: bool  # from stored keys and values

    @classmethod
    def of(cls, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """Read a call's arguments."""
        input_ids = kwargs.get("input_ids", args[0] if args else None)
        if input_ids is None:
            raise InputError("o3 tells prompts apart by their tokens: call the model with them")
        cache = kwargs.get("past_key_values")
        goes_on = cache is not None and cache.get_seq_length() > 0
        mask = kwargs.get("attention_mask", args[1] if len(args) > 1 else None)
        return cls(input_ids, mask, goes_on)

    def rows(self) -> list[tuple[int, ...]]:
        """Return the tokens of each row without padding."""
        ids = self.input_ids.tolist()
        if self.attention_mask is None or self.attention_mask.dim() != 2:
            return [tuple(row) for row in ids]
        mask = self.attention_mask.tolist()
        return [
            tuple(token for token, shown in zip(row, shows, strict=True) if shown)
            for row, shows in zip(ids, mask, strict=True)
        ]
