"""What was forgotten against what was kept, with lines of equal Trade-off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tfrnet_bench.constants import STREAM, UNTOUCHED
from tfrnet_bench.figures.series import with_results
from tfrnet_bench.figures.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    new_figure,
    shared_legend,
)
from tfrnet_bench.results import Run
from tfrnet_bench.seeds import Seeds
from tfrnet_bench.tables.labels import in_order, task_label, variant_label
from tfrnet_bench.tables.main_table import main_variants, stream_score

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LEVELS = range(10, 100, 10)
# A difference of a point or two should not fill a panel.
_NARROWEST = 25.0
_COLOURS = (ORANGE, SKY, GREEN, PURPLE, RED)
_MARKERS = "osD^vp<>"
# Colour, marker and size of those that a reader looks for first.
_MARKED = {
    UNTOUCHED: (BLACK, "X", 9),
    "tfr-paper": (BLUE, "h", 9),
    "tfr": (BLUE, "*", 13),
}


def draw_tradeoff(run: Run) -> Figure | None:
    """Draw a panel for each stream, a point for each variant, error bars over seeds."""
    variants, streams = with_results(run, main_variants(run))
    if not streams:
        return None
    figure = new_figure(3.3 * len(streams) + 0.4, 4.3)
    panels = figure.subplots(1, len(streams), squeeze=False)[0]
    styles = _styles(variants)
    for axes, stream in zip(panels, streams, strict=True):
        for variant in variants:
            _draw_point(axes, run, stream, variant, styles[variant])
        axes.set(xlim=_with_margin(axes.get_xlim()), ylim=_with_margin(axes.get_ylim()))
        _draw_levels(axes)
        axes.set_title(task_label(stream))
        axes.set_xlabel("forgotten: 100 - F Avg")
    panels[0].set_ylabel("kept: R Avg")
    shared_legend(figure, panels, 7 * len(streams) // 3, "Bars: 95 % interval over seeds")
    return figure


def _styles(variants: list[str]) -> dict[str, tuple[str, str, int]]:
    """Return a colour, marker and size for each variant, no two the same."""
    others = [variant for variant in in_order(variants) if variant not in _MARKED]
    plain = {
        variant: (_COLOURS[place % len(_COLOURS)], _MARKERS[place % len(_MARKERS)], 6)
        for place, variant in enumerate(others)
    }
    return plain | _MARKED


def _draw_point(
    axes: Any, run: Run, stream: str, variant: str, style: tuple[str, str, int]
) -> None:
    forget = run.seeds(STREAM, stream, variant, stream_score("forget_average"))
    retain = run.seeds(STREAM, stream, variant, stream_score("retain_average"))
    if not forget.numbers:
        return
    colour, marker, size = style
    place = 100 - forget.mean()[0], retain.mean()[0]
    axes.errorbar(
        *place,
        xerr=_half_width(forget),
        yerr=_half_width(retain),
        fmt="none",
        ecolor=colour,
        elinewidth=0.9,
        alpha=0.7,
        zorder=2,
    )
    axes.plot(
        *place,
        marker,
        color=colour,
        markersize=size,
        markeredgecolor="white",
        markeredgewidth=0.6,
        label=variant_label(variant),
        zorder=4 if variant in _MARKED else 3,
    )


def _half_width(seeds: Seeds) -> float:
    mean, interval = seeds.mean()
    return interval.high - mean if interval else 0.0


def _with_margin(limits: tuple[float, float]) -> tuple[float, float]:
    """Return the range with a margin around the points, and not too narrow."""
    low, high = limits
    margin = max(3.0, (_NARROWEST - (high - low)) / 2)
    return max(0.0, low - margin), min(100.0, high + margin)


def _draw_levels(axes: Any) -> None:
    """Draw where the Trade-off is the same: the harmonic mean of both axes."""
    left, right = axes.get_xlim()
    low, high = axes.get_ylim()
    for level in _LEVELS:
        if level / 2 >= right:
            continue
        # Dense where the line is steep, next to the least that must be forgotten for a level.
        forgotten = level / 2 + np.geomspace(0.001, right - level / 2, 2000)
        kept = level * forgotten / (2 * forgotten - level)
        inside = (forgotten >= left) & (kept >= low) & (kept <= high)
        if not inside.any():
            continue
        forgotten, kept = forgotten[inside], kept[inside]
        axes.plot(
            forgotten,
            kept,
            color=GREY,
            linewidth=0.7,
            linestyle=":",
            zorder=1,
            label="equal Trade-off",
        )
        # Written where the line ends at the right or below, where points are few.
        axes.annotate(
            str(level),
            (forgotten[-1], kept[-1]),
            (2, 1),
            textcoords="offset points",
            fontsize=7,
            color=GREY,
        )
