"""Scaling an adapter's output row by row, and reading the rows of a call."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tfrnet.core.errors import InputError


class RowWeights:
    """Multiplies the output of some modules by one weight per row, if weights are set."""

    def __init__(self) -> None:
        self.weights: torch.Tensor | None = None
        self._positions = 0
        self._handles: list[Any] = []

    def watch(self, modules: Iterable[nn.Module]) -> None:
        """Hook the modules until `release`."""
        self._handles += [module.register_forward_hook(self._scale) for module in modules]

    def release(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def set(self, weights: torch.Tensor | None, positions: int = 0) -> None:
        """Set the weights of the rows of the next pass, each with `positions` tokens."""
        self.weights = weights
        self._positions = positions

    def _scale(self, module: nn.Module, inputs: Any, output: torch.Tensor) -> torch.Tensor | None:
        if self.weights is None:
            return None
        weights = self.weights
        if output.dim() == 2 and len(output) == len(weights) * self._positions:
            # Some mixture-of-experts layers flatten the rows.
            weights = weights.repeat_interleave(self._positions)
        elif len(output) != len(weights):
            raise InputError(
                "o3 cannot tell the rows of a layer's input apart; leave the layer out of "
                "target_modules"
            )
        scale = weights.to(output).view(-1, *[1] * (output.dim() - 1))
        # 0 means off even for an adapter that diverged, where a product would be NaN.
        return (output * scale).masked_fill(scale == 0, 0.0)


@dataclass(frozen=True)
class Call:
    """The arguments of a model call that identify its rows."""

    input_ids: torch.Tensor
    attention_mask: torch.Tensor | None
    goes_on: bool  # from stored keys and values

    @classmethod
    def of(cls, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """Read a call's arguments."""
        input_ids = kwargs.get("input_ids", args[0] if args else None)
        if input_ids is None:
            raise InputError("o3 recognises prompts by their tokens: call the model with input_ids")
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
