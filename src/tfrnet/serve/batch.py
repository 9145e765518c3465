"""Rows of tokens that are continued together, and that come and go one by one.

Shapes: B rows, W positions (the longest row's; shorter ones are padded on the left), V tokens.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from tfrnet.core.errors import InputError
from tfrnet.models.forward import at_least_float32, input_device
from tfrnet.models.padding import padded

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Batch:
    """The keys and values of rows under way on one model.

    Rows can join others where every layer of the model's cache keeps all positions. With sliding
    windows and the like they cannot: there a batch takes new rows only when it is empty.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._device = input_device(model)
        self._parameters = inspect.signature(model.forward).parameters
        self._cache: Any = None
        self._attention = torch.zeros(0, 0, dtype=torch.long)
        self.size = 0

    @property
    def takes_more(self) -> bool:
        """Whether rows can be added now."""
        return self.size == 0 or _keeps_everything(self._cache)

    @torch.no_grad()
    def add(self, prompts: Sequence[Sequence[int]]) -> torch.Tensor:
        """Take in prompts as the last rows and return the logits of what follows each. [B, V]."""
        ids, attention = padded(prompts, "left")
        cache = DynamicCache(config=self._model.config)
        logits, cache = self._forward(ids, attention, cache)
        if self.size:
            width = max(self._attention.shape[1], attention.shape[1])
            _widen(self._cache, width)
            _widen(cache, width)
            _append_rows(self._cache, cache)
            self._attention = torch.cat([_wide(self._attention, width), _wide(attention, width)])
        else:
            self._cache, self._attention = cache, attention
        self.size += len(prompts)
        return logits

    @torch.no_grad()
    def step(self, tokens: Sequence[int]) -> torch.Tensor:
        """Take one more token for every row and return the logits of what follows. [B, V]."""
        one = torch.ones(self.size, 1, dtype=torch.long)
        self._attention = torch.cat([self._attention, one], 1)
        ids = torch.tensor(tokens, dtype=torch.long).unsqueeze(1)
        logits, self._cache = self._forward(ids, self._attention, self._cache)
        return logits

    def keep(self, rows: Sequence[int]) -> None:
        """Let all other rows go."""
        self.size = len(rows)
        if not rows:
            self._cache = None
            return
        chosen = torch.tensor(rows)
        self._attention = self._attention[chosen]
        self._cache.batch_select_indices(chosen.to(self._device))
        if _keeps_everything(self._cache):
            # Columns that were only the longest row's are padding now.
            empty = int((self._attention.sum(0) > 0).long().argmax())
            if empty:
                self._attention = self._attention[:, empty:]
                _cut_left(self._cache, empty)

    def _forward(
        self, ids: torch.Tensor, attention: torch.Tensor, cache: Any
    ) -> tuple[torch.Tensor, Any]:
        extra: dict[str, Any] = {}
        if "position_ids" in self._parameters:
            positions = (attention.cumsum(1) - 1).clamp(min=0)
            extra["position_ids"] = positions[:, -ids.shape[1] :].to(self._device)
        if "logits_to_keep" in self._parameters:
            extra["logits_to_keep"] = 1
        output = self._model(
            input_ids=ids.to(self._device),
            attention_mask=attention.to(self._device),
            past_key_values=cache,
            use_cache=True,
            **extra,
        )
        cache = getattr(output, "past_key_values", None)
        if cache is None:
            raise InputError(
                f"the service cannot answer with a {type(self._model).__name__}: it returns no "
                "cache of keys and values, from which answers are continued"
            )
        return at_least_float32(output.logits[:, -1]), cache


def _keeps_everything(cache: Any) -> bool:
    return all(type(layer) is DynamicLayer for layer in cache.layers)


def _wide(attention: torch.Tensor, width: int) -> torch.Tensor:
    return torch.nn.functional.pad(attention, (width - attention.shape[1], 0))


def _widen(cache: Any, width: int) -> None:
    """Pad keys and values on the left; the attention mask hides what is added."""
    for layer in cache.layers:
        missing = width - layer.keys.shape[-2]
        if missing:
            layer.keys = torch.nn.functional.pad(layer.keys, (0, 0, missing, 0))
            layer.values = torch.nn.functional.pad(layer.values, (0, 0, missing, 0))


def _append_rows(cache: Any, more: Any) -> None:
    for layer, added in zip(cache.layers, more.layers, strict=True):
        layer.keys = torch.cat([layer.keys, added.keys])
        layer.values = torch.cat([layer.values, added.values])


def _cut_left(cache: Any, columns: int) -> None:
    for layer in cache.layers:
        layer.keys = layer.keys[..., columns:, :].contiguous()
        layer.values = layer.values[..., columns:, :].contiguous()
