"""Scaling inside compiled decoder layers, where the multiplications are fused into other kernels.

One compiled function serves all layers and passes. So only the values and shapes of the tensors
that a layer reads may change: the hooks that scale stay in place, and each pass gives them other
tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch._dynamo import config as dynamo
from torch._dynamo.exc import FailOnRecompileLimitHit, TorchDynamoException
from torch._functorch import config as functorch
from torch.distributed.tensor import DTensor
from torch.fx.experimental import _config as shapes

from tfrnet.core.errors import InputError
from tfrnet.models.layers import decoder_layers, is_projection

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Passes with or without a gradient, of one or more examples, padded or not, and rare cases.
_MOST_VARIANTS = 64
# Config names for the number of experts. Experts get single tokens, so their shapes vary.
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_DYNAMO: dict[str, Any] = {
    "recompile_limit": _MOST_VARIANTS,
    "skip_nnmodule_hook_guards": False,
    # Masks and weights differ in size from pass to pass.
    "force_nn_module_property_static_shapes": False,
}
_CANNOT = "this model cannot be compiled here; leave out --compile ({})"


def _in_short(error: Exception) -> str:
    """Return the first two lines of an error's message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:2]) or type(error).__name__


@contextmanager
def compiling() -> Iterator[None]:
    """Set torch's options for compiling these layers; turn its errors into a one-line error."""
    _refuse_old_torch()
    try:
        with (
            dynamo.patch(_DYNAMO),
            # Sizes that happen to be equal are still treated as different.
            shapes.patch(use_duck_shape=False),  # type: ignore[attr-defined]
            # For the backward pass only the projections' outputs are kept; rotations and
            # activations are recomputed. In all, 1.15 times the size of these outputs is kept.
            functorch.patch(aggressive_recomputation=True),
        ):
            yield
    except (TorchDynamoException, FailOnRecompileLimitHit) as error:
        raise InputError(_CANNOT.format(_in_short(error))) from error


class CompiledLayers:
    """A model's decoder layers, compiled, with their projections scaled by a mask."""

    def __init__(
        self,
        model: PreTrainedModel,
        projections: Sequence[nn.Module],
        backend: str | Callable[..., Any],
    ) -> None:
        refuse_uncompilable(model, projections)
        run = _compiled(backend)
        layers = decoder_layers(model)
        inside = _projections_of(layers)
        self._projections = projections
        self._layers = layers
        # All projections get a hook, masked or not, because all layers share the compiled code.
        self._handles = [module.register_forward_hook(_scale) for module in inside]
        self._hooked = inside
        for module in inside:
            module.__dict__.update(_tfr_rows=None, _tfr_weights=None)
        selected = set(projections)
        for layer in layers:
            is_masked = any(module in selected for module in layer.modules())
            layer.forward = _CompiledForward(layer, run, is_masked)

    def show(self, rows: Sequence[torch.Tensor], weights: torch.Tensor | None = None) -> None:
        """Scale by these masks, [1, D] or [B, D], from the next forward pass on.

        `weights` [B, N], if given, weight the tokens in the gradient with respect to the mask.
        """
        for module, values in zip(self._projections, rows, strict=True):
            module.__dict__.update(_tfr_rows=values, _tfr_weights=weights)

    def remove(self) -> None:
        """Restore the original layers."""
        for handle in self._handles:
            handle.remove()
        for module in self._hooked:
            del module.__dict__["_tfr_rows"], module.__dict__["_tfr_weights"]
        for layer in self._layers:
            del layer.__dict__["forward"]


def refuse_uncompilable(model: PreTrainedModel, projections: Sequence[nn.Module]) -> None:
    """Refuse models whose projections the compiled layers would miss or scale differently."""
    _refuse_old_torch()
    layers = decoder_layers(model)
    inside = _projections_of(layers)
    if any(module not in inside for module in projections):
        raise InputError(_CANNOT.format("some masked projections are outside the decoder's layers"))
    if any(getattr(model.config.get_text_config(), name, 0) for name in _EXPERTS):
        raise InputError(_CANNOT.format("it is a mixture of experts"))
    if any("forward" in module.__dict__ for layer in layers for module in layer.modules()):
        raise InputError(_CANNOT.format("accelerate or another program has patched its layers"))
    weights = [weight for layer in layers for weight in layer.parameters()]
    if any(isinstance(weight, DTensor) or not weight.is_floating_point() for weight in weights):
        raise InputError(_CANNOT.format("its weights are sharded or quantised"))
    if any(weight.dtype != model.dtype for module in inside for weight in module.parameters()):
        raise InputError(_CANNOT.format("its projections have several dtypes"))


def _refuse_old_torch() -> None:
    if not all(hasattr(dynamo, name) for name in _DYNAMO):
        raise InputError(_CANNOT.format(f"torch {torch.__version__} is too old"))


def _projections_of(layers: Sequence[nn.Module]) -> dict[nn.Module, None]:
    """Return the projections in some layers, in order and without duplicates."""
    return dict.fromkeys(m for layer in layers for m in layer.modules() if is_projection(m))


class _CompiledForward:
    """A layer's `forward`, compiled.

    Only `forward` is compiled, not the whole call, so hooks on the layer and gradient checkpointing
    stay outside and can be added or removed freely.
    """

    def __init__(self, layer: nn.Module, run: Callable[..., Any], is_masked: bool) -> None:
        self.layer = layer
        self.is_masked = is_masked
        self.run = run
        self.plain = layer.forward

    def __call__(self, hidden: torch.Tensor, *inputs: Any, **named: Any) -> Any:
        if named.get("past_key_values") is not None:
            # The cache differs for every layer and token, so generation is not compiled.
            return self.plain(hidden, *inputs, **named)
        if self.is_masked and torch.is_grad_enabled() and not hidden.requires_grad:
            # The first masked layer: an unneeded gradient costs less than another compiled variant.
            hidden = hidden.detach().requires_grad_()
        return self.run(self.layer, hidden, *inputs, **named)


@cache
def _compiled(backend: str | Callable[..., Any]) -> Callable[..., Any]:
    """Return the compiled function, shared by all models and requests."""
    try:
        compiled: Callable[..., Any] = torch.compile(
            _forward, backend=backend, dynamic=True, fullgraph=True
        )
    except RuntimeError as error:  # a platform or Python that torch does not compile on
        raise InputError(_CANNOT.format(_in_short(error))) from error
    return compiled


def _forward(layer: nn.Module, *inputs: Any, **named: Any) -> Any:
    """Run a layer's `forward`. A function of our own, so its compile cache is not shared."""
    return type(layer).forward(layer, *inputs, **named)


def _scale(module: nn.Module, inputs: Any, output: torch.Tensor) -> torch.Tensor | None:
    """Forward hook that multiplies an output by its mask; the gradient is summed in float32."""
    rows: torch.Tensor | None = module.__dict__["_tfr_rows"]
    if rows is None:
        return None
    if output.dim() != 3:
        raise InputError("a projection gets tokens without a batch dimension; leave out --compile")
    weights: torch.Tensor | None = module.__dict__["_tfr_weights"]
    rows = rows.unsqueeze(1)
    if weights is not None:
        fixed = rows.detach()
        rows = fixed + weights.unsqueeze(-1) * (rows - fixed)
    return (output * rows).to(output.dtype)
