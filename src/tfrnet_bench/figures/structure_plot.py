"""Where the relevant channels of each request come from, with and without recovery."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tfrnet_bench.figures.series import seed_count, seed_values, with_results
from tfrnet_bench.figures.style import BLACK, BLUE, ORANGE, SKY, new_figure, shared_legend
from tfrnet_bench.results import CellResult, Run
from tfrnet_bench.tables.labels import task_label, variant_label
from tfrnet_bench.tables.structure_table import SHARES, STRUCTURE_VARIANTS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = {"core": BLUE, "new": ORANGE, "recurring": SKY}


def draw_structure(run: Run) -> Figure | None:
    """Draw stacked shares, a row for each variant and a column for each stream."""
    variants, streams = with_results(run, STRUCTURE_VARIANTS)
    if not streams:
        return None
    figure = new_figure(3.1 * len(streams) + 0.6, 2.0 * len(variants) + 0.8)
    grid = figure.subplots(len(variants), len(streams), sharex=True, sharey=True, squeeze=False)
    for row, variant in zip(grid, variants, strict=True):
        for axes, stream in zip(row, streams, strict=True):
            _draw_shares(axes, run, stream, variant)
        row[0].set_ylabel(f"{variant_label(variant)}\n% of ranked channels")
    for axes in grid[-1]:
        axes.set_xlabel("request")
    shared_legend(figure, grid.flat, min(4, 2 * len(streams)))
    return figure


def _draw_shares(axes: Any, run: Run, stream: str, variant: str) -> None:
    shares = seed_values(run, stream, variant, _shares)
    if shares is None:
        axes.set_title(task_label(stream))
        axes.text(0.5, 0.5, "no result", ha="center", va="center", transform=axes.transAxes)
        return
    axes.set_title(f"{task_label(stream)}, {seed_count(len(shares))}")
    mean = shares.mean(axis=0)
    requests = np.arange(1, len(mean) + 1)
    below = np.zeros(len(mean))
    for name, share in zip(SHARES, mean.T, strict=True):
        axes.bar(requests, share, 0.9, below, color=_COLOURS[name], label=name)
        below += share
    overlap = seed_values(run, stream, variant, lambda r: 100 * r.structure["random_overlap"])
    if overlap is not None:
        chance = "core, if drawn at random"
        axes.axhline(overlap.mean(), color=BLACK, linestyle=":", linewidth=1.2, label=chance)
    axes.set(xlim=(0.4, len(mean) + 0.6), ylim=(0, 100))
    axes.set_xticks([number for number in requests if number == 1 or number % 5 == 0])


def _shares(result: CellResult) -> list[list[float]]:
    return [[100 * shares[name] for name in SHARES] for shares in result.structure["composition"]]
