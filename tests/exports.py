"""Exports of a live model, as tests make them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from tfrnet.export import FORMATS
from tfrnet.export.format import Job, Options
from tfrnet.export.origin import Origin
from tfrnet.export.write import write_export
from tfrnet.masking.channels import find_channels
from tfrnet.masking.mask import ChannelMask

ORIGIN = Origin("a test", "somewhere/base", "f" * 64, "d" * 64, "tfr")


def export_as(
    form: str, effect: Any, tokenizer: Any, folder: Path, origin: Origin = ORIGIN, **options: Any
) -> float:
    """Export what an effect makes of its model, and return the relative difference."""
    return write_export(
        Job(effect, tokenizer, origin, Options(**options)), FORMATS.find(form), folder
    )


def closed_export(form: str, effect: Any, tokenizer: Any, folder: Path, **options: Any) -> set[int]:
    """Export where new files are for their owner alone; return the modes of those exported."""
    before = os.umask(0o077)
    try:
        export_as(form, effect, tokenizer, folder, **options)
    finally:
        os.umask(before)
    return {path.stat().st_mode & 0o777 for path in folder.rglob("*") if path.is_file()}


def masked(model: Any, values: torch.Tensor | None = None) -> ChannelMask:
    """Return a random mask over all channels of a model, or the one given, put on it."""
    mask = ChannelMask(model, find_channels(model))
    mask.set(random_mask(mask.index.total) if values is None else values)
    return mask


def random_mask(total: int) -> torch.Tensor:
    choices = torch.tensor([1.0, 0.7, 0.05, 0.0])
    return choices[torch.randint(4, (total,), generator=torch.Generator().manual_seed(0))]


def few_changed(model: Any, count: int = 2) -> torch.Tensor:
    """Return a mask with the first so many channels of every projection changed."""
    index = find_channels(model)
    values = torch.ones(index.total)
    for part in index:
        end = part.start + min(count, part.width)
        values[part.start : end] = torch.linspace(0, 0.7, end - part.start)
    return values
