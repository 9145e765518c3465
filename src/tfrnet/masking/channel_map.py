"""Where in a model the mask acts: channel counts by layer and projection."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch

from tfrnet.core.errors import InputError
from tfrnet.masking.channels import layer_of
from tfrnet.masking.mask import dormant


def channel_map(
    layout: Sequence[Sequence[Any]], masks: Sequence[torch.Tensor], threshold: float
) -> dict[str, Any]:
    """Return the counts as plain JSON values: one row per layer, one column per projection.

    `layout` is that of `ChannelMask.layout()`; `masks` are the flat masks before the first and
    after every request. Suppressed (below 1), changed (by more than 1 %) and dormant
    channels are those of the last mask, recovered ones were raised by any request. Modules of one
    layer that end in the same name are counted together; those outside all layers have a row of
    their own, whose layer is None.
    """
    total = sum(width for _, width in layout)
    if not masks or any(mask.shape != (total,) for mask in masks):
        raise InputError(f"a channel map needs masks of the layout's {total} channels")
    raised = torch.zeros(total, dtype=torch.bool)
    for before, after in pairwise(masks):
        raised |= after > before
    parts = {
        "channels": torch.ones(total, dtype=torch.bool),
        "suppressed": masks[-1] < 1,
        "changed": masks[-1] < 0.99,
        "dormant": dormant(masks[-1], threshold),
        "recovered": raised,
    }
    places = [(layer_of(name), name.rsplit(".", 1)[-1]) for name, _ in layout]
    numbers = sorted({layer for layer, _ in places if layer is not None})
    layers = [*([None] if any(layer is None for layer, _ in places) else []), *numbers]
    projections = list(dict.fromkeys(projection for _, projection in places))
    widths = [width for _, width in layout]
    return {"projections": projections, "layers": layers} | {
        name: _table(
            places, layers, projections, [int(part.sum()) for part in torch.split(flags, widths)]
        )
        for name, flags in parts.items()
    }


def _table(
    places: Sequence[tuple[int | None, str]],
    layers: Sequence[int | None],
    projections: Sequence[str],
    counts: Sequence[int],
) -> list[list[int]]:
    table = [[0] * len(projections) for _ in layers]
    for (layer, projection), count in zip(places, counts, strict=True):
        table[layers.index(layer)][projections.index(projection)] += count
    return table
