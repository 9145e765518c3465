"""Applying a channel mask to a live model, and reading gradients with respect to it.

Shapes: B examples, N token positions, D channels of one projection, C channels in all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple
from weakref import WeakSet

import torch
from torch import nn
from torch.nn.functional import linear
from torch.utils.hooks import RemovableHandle

from tfrnet.core.errors import InputError
from tfrnet.masking.channels import ChannelIndex
from tfrnet.masking.fold import folded_tensors
from tfrnet.masking.per_example import SAFE_DIVISOR, PerExample

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from tfrnet.core.tensors import State
    from tfrnet.masking.compiled import CompiledLayers

# By model type, the projections to whose outputs the model adds something in place, so that the
# backward pass needs a copy of them.
_ADDED_TO = {"falcon": ("mlp.dense_4h_to_h",), "llama4_text": ("shared_expert.down_proj",)}

# Two masks on one model would multiply, so a second one is refused.
_masked_models: WeakSet[nn.Module] = WeakSet()


class ChannelMask:
    """A mask in [0, 1] that scales the outputs of the selected projections of one model.

    It scales the projections' outputs; the model's weights and structure do not change. `detach`
    removes it, and so does leaving a `with` block.
    """

    has_mask: ClassVar[bool] = True

    def __init__(self, model: PreTrainedModel, index: ChannelIndex) -> None:
        if model in _masked_models:
            raise InputError("a channel mask is attached to this model already; detach it first")
        self.model = model
        self.index = index
        self._modules = [model.get_submodule(projection.name) for projection in index]
        # The device for all per-channel tensors: the model's, not the host.
        self.home = _device_of(self._modules[0])
        self._values = torch.ones(index.total, device=self.home)
        self._parts = _Parts(index, self._values, model.dtype)
        self._handles: list[RemovableHandle | _MaskedForward] = []
        self._compiled: CompiledLayers | None = None
        _masked_models.add(model)

    def __enter__(self) -> ChannelMask:
        return self

    def __exit__(self, *exception: object) -> None:
        self.detach()

    @property
    def values(self) -> torch.Tensor:
        """The flat mask that is currently applied."""
        return self._values

    def set(self, values: torch.Tensor) -> None:
        """Apply a new flat mask from the next forward pass on."""
        if values.shape != (self.index.total,):
            raise ValueError(f"a mask of shape ({self.index.total},) is needed")
        self._values = values.detach().to(self.home, copy=True)
        self._parts = _Parts(self.index, self._values, self.model.dtype)
        self._hook_inference()

    def show(self, state: State) -> None:
        """Apply the mask of a state."""
        self.set(state.tensors()["mask"])

    def layout(self) -> list[list[Any]]:
        """Return the projections and their numbers of channels."""
        return self.index.to_list()

    def folded(self) -> dict[str, torch.Tensor]:
        """Return the weights of an equivalent ordinary model."""
        return folded_tensors(self.model, self.index, self.values)

    @contextmanager
    def holding(self, values: torch.Tensor) -> Iterator[None]:
        """Apply another flat mask within a `with` block."""
        own = self.values
        try:
            self.set(values)
            yield
        finally:
            self.set(own)

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """Restore the original model within a `with` block."""
        with self.holding(torch.ones_like(self.values)):
            yield

    def detach(self) -> None:
        """Remove the mask, which restores the original model."""
        self._unhook()
        self._take_off_compiled()
        _masked_models.discard(self.model)

    def _take_off_compiled(self) -> None:
        if self._compiled is not None:
            self._compiled.remove()
            self._compiled = None

    def _unhook(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _hook_inference(self) -> None:
        """Scale outputs; projections whose mask is all ones get no hook and cost nothing."""
        if self._compiled is not None:
            self._compiled.show(self._rows(1))
            return
        self._unhook()
        for module, part in zip(self._modules, self._parts, strict=True):
            if not part.is_one:
                self._handles.append(_MaskedForward(module, part))

    def _rows(self, batch: int) -> list[torch.Tensor]:
        """Return the mask of every projection, repeated for each example. [B, D] each.

        They are views of one tensor: creating them one by one would take longer than a small pass.
        """
        values = self._values
        if self._compiled is not None:
            # Rounded to the model's dtype, as the forward hooks do themselves.
            values = values.to(self.model.dtype).to(values.dtype)
        pieces = self.index.split(values.repeat(batch, 1))
        return [
            piece.to(_device_of(module))
            for piece, module in zip(pieces, self._modules, strict=True)
        ]

    @contextmanager
    def compiled(self, backend: str | Callable[..., Any] = "inductor") -> Iterator[None]:
        """Let the model's layers be compiled meanwhile: the same mask in fewer, longer kernels."""
        if self._compiled is not None:
            raise RuntimeError("the layers are compiled already")
        # Here, since torch's compiler takes a second or two to import.
        from tfrnet.masking.compiled import CompiledLayers, compiling

        with compiling():
            self._unhook()
            try:
                layers = self._compiled = CompiledLayers(self.model, self._modules, backend)
            except BaseException:
                self._hook_inference()
                raise
            try:
                self._hook_inference()
                yield
            finally:
                # Unless the mask was detached in the meantime.
                if self._compiled is layers:
                    self._take_off_compiled()
                    self._hook_inference()

    @contextmanager
    def per_example(
        self, batch: int, length: int, weights: torch.Tensor | None = None
    ) -> Iterator[list[torch.Tensor]]:
        """Give every example of a batch its own copy of the mask and yield these leaves.

        After a backward pass `leaf.grad[b]` is the gradient of the loss with respect to example
        b's mask; `weights` [B, N], if given, weight the sum over tokens. Shape of a leaf: [B, D].
        """
        leaves = [rows.detach().requires_grad_() for rows in self._rows(batch)]
        if self._compiled is not None:
            self._compiled.show(leaves, weights)
            try:
                yield leaves
            finally:
                self._hook_inference()
            return
        self._unhook()
        added_to = _ADDED_TO.get(self.model.config.get_text_config().model_type, ())
        for projection, module, part, leaf in zip(
            self.index, self._modules, self._parts, leaves, strict=True
        ):
            faint = None if part.faint is None else part.faint.to(leaf.device)
            # A second number in a name, after the layer's, is the number of an expert.
            routed = sum(name.isdigit() for name in projection.name.split(".")) > 1
            is_added_to = projection.name.endswith(added_to)
            hook = PerExample(leaf, faint, length, weights, routed, is_added_to)
            self._handles.append(module.register_forward_hook(hook))
        try:
            yield leaves
        finally:
            self._hook_inference()


class _Part(NamedTuple):
    """One projection's part of the mask.

    `narrow` is the same in the model's dtype, `is_one` whether it is all ones, and `faint` the
    channels near 0, if any.
    """

    values: torch.Tensor
    narrow: torch.Tensor
    is_one: bool
    faint: torch.Tensor | None

    def in_numbers_of(self, weight: torch.Tensor) -> torch.Tensor:
        """Return the part in the dtype to multiply the output of a projection with this weight."""
        if weight.dtype == self.narrow.dtype:
            return self.narrow
        return self.values.to(weight.dtype) if weight.is_floating_point() else self.values


class _Parts(list[_Part]):
    """The parts of a mask, one per projection.

    Their properties are computed together: every read from a GPU makes the host wait, and there are
    hundreds of projections.
    """

    def __init__(self, index: ChannelIndex, values: torch.Tensor, dtype: torch.dtype) -> None:
        near_zero = (values < SAFE_DIVISOR).nonzero().flatten()
        ends = torch.tensor(list(accumulate(index.widths)), device=values.device)
        changed_until = (values != 1).cumsum(0)[ends - 1]
        faint_until = torch.searchsorted(near_zero, ends)
        bounds = torch.stack([changed_until, faint_until]).tolist()
        changed, faint = ([0, *until] for until in bounds)
        super().__init__(
            _Part(
                piece,
                narrow,
                changed[i + 1] == changed[i],
                near_zero[faint[i] : faint[i + 1]] - index[i].start
                if faint[i + 1] > faint[i]
                else None,
            )
            for i, (piece, narrow) in enumerate(
                zip(index.split(values), index.split(values.to(dtype)), strict=True)
            )
        )


class _MaskedForward:
    """A module's `forward` with its output multiplied by a fixed mask.

    It replaces the module's `forward`, which takes a third of the time of a forward hook; during
    generation it runs once per projection and token.
    """

    def __init__(self, module: nn.Module, part: _Part) -> None:
        self.module = module
        self.values = part.in_numbers_of(next(module.parameters()))
        # True only if something else, such as accelerate, has replaced `forward` before.
        self.had_own = "forward" in module.__dict__
        self.forward = module.forward
        is_plain = not self.had_own and type(module).forward is nn.Linear.forward
        self.parameters: dict[str, Any] | None = module._parameters if is_plain else None
        module.forward = self

    def __call__(self, *inputs: Any, **named: Any) -> torch.Tensor:
        parameters = self.parameters
        output: torch.Tensor
        if parameters is None or named:
            output = self.forward(*inputs, **named)
        else:
            # The same as a plain linear layer's forward, without the overhead of the call.
            output = linear(inputs[0], parameters["weight"], parameters["bias"])
        if torch.is_grad_enabled():
            return output * self.values.to(output.device, output.dtype)
        try:
            return output.mul_(self.values)
        except RuntimeError:
            # The output is on another device. This happens once; checking every time costs more.
            self.values = self.values.to(output.device)
            return output.mul_(self.values)

    def remove(self) -> None:
        """Restore the module's own `forward`."""
        if self.had_own:
            self.module.forward = self.forward
        else:
            del self.module.__dict__["forward"]


def live_masks(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the name and mask of every projection that is currently scaled."""
    for name, module in model.named_modules():
        forward = module.__dict__.get("forward")
        if isinstance(forward, _MaskedForward):
            yield name, forward.values


def replaced_forward(module: nn.Module) -> Any | None:
    """Return the `forward` that a masked module had from something else before the mask, if any."""
    forward = module.__dict__.get("forward")
    if isinstance(forward, _MaskedForward) and forward.had_own:
        return forward.forward
    return None


def _device_of(module: nn.Module) -> torch.device:
    """Return the device a module computes on; for offloaded weights accelerate's hook has it."""
    hook = getattr(module, "_hf_hook", None)
    device = getattr(hook, "execution_device", None)
    if device is not None:
        return torch.device(device)
    return next(module.parameters()).device


def dormant(mask: torch.Tensor, threshold: float) -> torch.Tensor:
    """Return which channels are dormant: mask at or below the threshold."""
    return mask <= threshold


def capacity(mask: torch.Tensor, threshold: float) -> float:
    """Return the share of channels above the dormant threshold (eq. structural_capacity)."""
    return 1.0 - int(dormant(mask, threshold).sum()) / mask.numel()
