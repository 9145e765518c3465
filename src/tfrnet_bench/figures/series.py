"""Measurements of several seeds as arrays, for figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfrnet_bench.constants import STREAM
from tfrnet_bench.results import CellResult, Run

Array = NDArray[np.float64]


def with_results(run: Run, variants: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the variants that have a result on some stream, and the streams they have it on."""
    found = [
        (variant, stream)
        for variant in variants
        for stream in run.streams(STREAM)
        if run.by_seed(STREAM, stream, variant)
    ]
    variants_found = list(dict.fromkeys(variant for variant, _ in found))
    on = {stream for _, stream in found}
    return variants_found, [stream for stream in run.streams(STREAM) if stream in on]


def seed_values(
    run: Run, stream: str, variant: str, read: Callable[[CellResult], Any]
) -> Array | None:
    """Return what is read from each seed's result, seeds first; None if there is no result."""
    found = [read(result) for result in run.by_seed(STREAM, stream, variant).values()]
    return np.asarray(found, dtype=float) if found else None


def seed_count(count: int) -> str:
    """Return how many seeds a figure's mean is over."""
    return f"{count} seed" if count == 1 else f"{count} seeds"
