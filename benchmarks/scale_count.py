"""The work of a request, counted while it runs, and the least time that it needs.

Operations are those of the matrix products that were executed, forward, backward and again where
activations are computed a second time. Of attention only what lies below the diagonal is counted,
since that is all that a causal model needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.scale_rates import Rates

_FLOAT32 = 4
# Master value and the two moments of Adam.
_KEPT_BY_ADAM = 3
# The backward pass makes the scores again, then the gradients of scores, queries, keys and values.
_ATTENTION_BACKWARD = 2.5


@dataclass
class Work:
    """Operations of matrix products, and bytes of weights that they read."""

    operations: int = 0
    weight_bytes: int = 0

    def read_weights(self, module: nn.Module, inputs: Any, output: Any) -> None:
        """Forward hook: a module's weights are read, and again when its gradient comes back."""
        # Of an embedding only a few rows are read.
        own = () if isinstance(module, nn.Embedding) else module.parameters(recurse=False)
        size = sum(parameter.nbytes for parameter in own)
        self._add(size)
        if size and output.requires_grad:
            output.register_hook(lambda gradient: self._add(size))

    def _add(self, size: int) -> None:
        self.weight_bytes += size


@contextmanager
def counted() -> Iterator[Work]:
    """Count what runs inside; the operations are there at the end."""
    work = Work()
    handle = register_module_forward_hook(work.read_weights)
    counter = FlopCounterMode(display=False, custom_mapping=_attention_formulas())
    counter.mod_tracker = _NoModules()
    try:
        with counter:
            yield work
    finally:
        handle.remove()
    work.operations = counter.get_total_flops()


class _NoModules:
    """Stands in for torch's record of who computes, which holds activations computed again."""

    parents = frozenset({"Global"})

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        pass


def optimiser_bytes(parameters: Iterable[nn.Parameter], steps: int) -> int:
    """Return the least traffic of AdamW on float32 copies: the gradient and what it keeps."""
    total = 0
    for parameter in parameters:
        gradient = 2 * parameter.nbytes  # written, read
        kept = 2 * _KEPT_BY_ADAM * _FLOAT32 * parameter.numel()  # read, written
        rounded = parameter.nbytes if parameter.element_size() < _FLOAT32 else 0
        total += gradient + kept + rounded
    return steps * total


def floor(operations: int, moved_bytes: int, rates: Rates) -> dict[str, float]:
    """Return the least seconds by operations, by bytes, and by both going on at a time."""
    by_operations = operations / rates.matrix
    by_bytes = moved_bytes / rates.bandwidth
    return {
        "operations": by_operations,
        "bytes": by_bytes,
        "seconds": max(by_operations, by_bytes),
    }


def forward_operations(config: Any, tokens: int, answers: int, length: int) -> tuple[int, int]:
    """Return the operations of a forward pass: of projections with the head, and of attention.

    `tokens` in all, in examples of `length`; the head sees those before `answers` answer tokens.
    """
    hidden, heads = config.hidden_size, config.num_attention_heads
    size = hidden // heads
    attention = hidden * size * (2 * heads + 2 * config.num_key_value_heads)
    mlp = 3 * hidden * config.intermediate_size
    projections = 2 * tokens * config.num_hidden_layers * (attention + mlp)
    head = 2 * answers * hidden * config.vocab_size
    pairs = tokens * (length + 1) // 2
    return projections + head, 4 * pairs * heads * size * config.num_hidden_layers


def scoring_operations(config: Any, tokens: int, answers: int, length: int) -> int:
    """Return what scoring needs: a forward pass and one back to activations, nothing twice."""
    linear, attention = forward_operations(config, tokens, answers, length)
    return 2 * linear + int(attention * (1 + _ATTENTION_BACKWARD))


def _attention_formulas() -> dict[Any, Any]:
    """Return formulas for all attention kernels; torch's own refuse shared heads or know no CPU."""
    formulas: dict[Any, Any] = {}
    for kernel in ("flash_attention", "efficient_attention", "cudnn_attention"):
        name = f"_scaled_dot_product_{kernel}"
        for place in ("", "_for_cpu"):
            forward = getattr(torch.ops.aten, f"{name}{place}", None)
            backward = getattr(torch.ops.aten, f"{name}{place}_backward", None)
            if forward and backward:
                formulas |= {forward: _causal_forward, backward: _causal_backward}
    return formulas


def _causal_forward(query: Any, key: Any, value: Any, *rest: Any, **named: Any) -> int:
    """Return the operations below the diagonal, from shapes [examples, heads, tokens, size]."""
    examples, heads, length, size = query
    pairs = length * (length + 1) // 2 if key[2] == length else length * key[2]
    return int(2 * examples * heads * pairs * (size + value[3]))


def _causal_backward(
    gradient: Any, query: Any, key: Any, value: Any, *rest: Any, **named: Any
) -> int:
    return int(_ATTENTION_BACKWARD * _causal_forward(query, key, value))
