"""The channels of a model: the output units of its linear projections."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from tfrnet.core.errors import InputError, TfrnetWarning
from tfrnet.models.layers import is_projection, output_width

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Projection:
    """One masked module: its name, width, and where its channels start in the flat tensors."""

    name: str
    width: int
    start: int


class ChannelIndex(Sequence[Projection]):
    """The selected projections, in the order of `model.named_modules()`."""

    def __init__(self, widths: Sequence[tuple[str, int]]) -> None:
        self._projections: list[Projection] = []
        start = 0
        for name, width in widths:
            self._projections.append(Projection(name, width, start))
            start += width
        self.total = start
        self.widths = [width for _, width in widths]

    def __len__(self) -> int:
        return len(self._projections)

    def __getitem__(self, position: Any) -> Any:
        return self._projections[position]

    def split(self, flat: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Cut a flat channel tensor (channels last) into one view per projection."""
        return torch.split(flat, self.widths, dim=-1)

    def to_list(self) -> list[list[Any]]:
        """Return names and widths as plain JSON values."""
        return [[projection.name, projection.width] for projection in self]


def find_channels(
    model: PreTrainedModel,
    target_modules: str | tuple[str, ...] = "all-linear",
    layers: tuple[int, ...] | None = None,
) -> ChannelIndex:
    """Select the projections that `target_modules` and `layers` name.

    Nothing is skipped silently: modules with weights that cannot be masked are named in a warning,
    and a name that selects nothing, or something that is not a projection, is an error.
    """
    _refuse_split_outputs(model)
    modules = {name: module for name, module in model.named_modules() if name}
    heads = _language_model_heads(model, modules)
    if target_modules == "all-linear":
        _warn_unmaskable(modules, heads)
        named = {n for n, m in modules.items() if is_projection(m)}
    else:
        named = _matching(modules, target_modules, heads)
    chosen = [
        (name, output_width(module))
        for name, module in modules.items()
        if name in named - heads and _in_layers(name, layers)
    ]
    if not chosen:
        where = "" if layers is None else f" in layers {list(layers)}"
        raise InputError(
            f"no module of {type(model).__name__} matches target_modules="
            f"{_shown(target_modules)}{where}; "
            f"its projections are called {', '.join(sorted(_endings(modules, heads)))}"
        )
    _refuse_missing_layers(chosen, layers)
    return ChannelIndex(chosen)


def _refuse_split_outputs(model: PreTrainedModel) -> None:
    """Refuse tensor parallelism, where a process has only some of a module's channels."""
    parts = getattr(model, "_tp_size", None) or 1
    if parts > 1:
        raise InputError(
            f"the model's matrices are split among {parts} processes (tensor parallelism), which "
            "channel masks cannot follow; use data parallelism, FSDP or a device map instead"
        )


def _language_model_heads(model: PreTrainedModel, modules: dict[str, nn.Module]) -> set[str]:
    head = model.get_output_embeddings()
    return {name for name, module in modules.items() if module is head or name == "lm_head"}


def _matching(
    modules: dict[str, nn.Module], target: str | tuple[str, ...], heads: set[str]
) -> set[str]:
    """Return the projections that a regular expression or a list of names selects."""
    patterns = (target,) if isinstance(target, str) else target
    chosen: set[str] = set()
    for pattern in patterns:
        if isinstance(target, str):
            found = {name for name in modules if re.fullmatch(pattern, name)}
        else:
            found = {n for n in modules if n == pattern or n.endswith(f".{pattern}")}
        linear = {name for name in found if is_projection(modules[name])}
        if linear and linear <= heads:
            raise InputError(f"target_modules names the LM head ({pattern}), which is never masked")
        others = sorted(name for name in found - linear if _owns_weights(modules[name]))
        if others and not linear:
            kind = type(modules[others[0]]).__name__
            raise InputError(
                f"target_modules names {others[0]} ({kind}), which is not a linear projection "
                "and cannot be masked"
            )
        if others:
            _warn_about(others, modules)
        if linear & heads:
            warnings.warn(
                "target_modules also matches the LM head, which is never masked",
                TfrnetWarning,
                stacklevel=4,
            )
        chosen |= linear
    if not isinstance(target, str):
        unmatched = [p for p in target if not any(n == p or n.endswith(f".{p}") for n in chosen)]
        if unmatched:
            raise InputError(
                f"target_modules names {unmatched[0]!r}, but no projection is called that; "
                f"there are {', '.join(sorted(_endings(modules, heads)))}"
            )
    return chosen


def _owns_weights(module: nn.Module) -> bool:
    """Tell whether a module has a weight matrix of its own (norms and containers do not)."""
    return any(parameter.dim() >= 2 for parameter in module.parameters(recurse=False))


def _warn_unmaskable(modules: dict[str, nn.Module], heads: set[str]) -> None:
    _warn_about(
        [
            name
            for name, module in modules.items()
            if _owns_weights(module)
            and not is_projection(module)
            and not isinstance(module, nn.Embedding)
            and name not in heads
        ],
        modules,
    )


def _warn_about(names: list[str], modules: dict[str, nn.Module]) -> None:
    if not names:
        return
    kinds = Counter(type(modules[name]).__name__ for name in names)
    summary = ", ".join(f"{count} x {kind}" for kind, count in sorted(kinds.items()))
    warnings.warn(
        f"not masked, because they are not linear projections: {summary} (first: {names[0]})",
        TfrnetWarning,
        stacklevel=4,
    )


def layer_of(name: str) -> int | None:
    """Return the layer number in a module's name: its first all-digit part."""
    return next((int(part) for part in name.split(".") if part.isdigit()), None)


def _in_layers(name: str, layers: tuple[int, ...] | None) -> bool:
    return layers is None or layer_of(name) in layers


def _refuse_missing_layers(chosen: list[tuple[str, int]], layers: tuple[int, ...] | None) -> None:
    present = {layer_of(name) for name, _ in chosen}
    missing = [layer for layer in layers or () if layer not in present]
    if missing:
        raise InputError(f"layers names layer {missing[0]}, which has no selected projection")


def _endings(modules: dict[str, nn.Module], heads: set[str]) -> set[str]:
    return {
        name.rsplit(".", 1)[-1]
        for name, module in modules.items()
        if is_projection(module) and name not in heads
    } or {"(none)"}


def _shown(target: str | tuple[str, ...]) -> str:
    return repr(target) if isinstance(target, str) else repr(list(target))
