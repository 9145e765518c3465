"""What was forgotten against what was kept, by both scores, with lines of equal Trade-off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
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
from tfrnet_bench.honest import measured
from tfrnet_bench.results import CellResult, Run
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


Read = Callable[[Run, str, str], Seeds]


@dataclass(frozen=True)
class _Score:
    """The two sides of a score, and how the axes and the lines of equal score are called."""

    forgotten: Read
    kept: Read
    across: str
    up: str
    level: str
    # A method may know a little more than before: what is kept of that may pass 100.
    most: float = 100.0


def _seeds(run: Run, stream: str, variant: str, read: Callable[[CellResult], float]) -> Seeds:
    return run.seeds(STREAM, stream, variant, read)


_PAPER = _Score(
    partial(_seeds, read=lambda result: 100 - stream_score("forget_average")(result)),
    partial(_seeds, read=stream_score("retain_average")),
    "forgotten: 100 - F Avg",
    "kept: R Avg",
    "equal Trade-off",
)
_HONEST = _Score(
    partial(measured, name="forgotten"),
    partial(measured, name="kept"),
    "forgotten, % of what can be",
    "kept, % of what was known",
    "equal honest Trade-off",
    most=110.0,
)


def draw_tradeoff(run: Run) -> Figure | None:
    """Draw the paper's score."""
    return _draw(run, _PAPER)


def draw_honest(run: Run) -> Figure | None:
    """Draw the honest score: requested items only, nothing below chance, kept of what was known."""
    return _draw(run, _HONEST)


def _draw(run: Run, score: _Score) -> Figure | None:
    """Draw a panel for each stream, a point for each variant, error bars over seeds."""
    variants, streams = with_results(run, main_variants(run))
    if not streams:
        return None
    figure = new_figure(3.3 * len(streams) + 0.4, 4.3)
    panels = figure.subplots(1, len(streams), squeeze=False)[0]
    styles = _styles(variants)
    for axes, stream in zip(panels, streams, strict=True):
        for variant in variants:
            _draw_point(axes, run, stream, variant, score, styles[variant])
        limits = (_with_margin(shown, score.most) for shown in (axes.get_xlim(), axes.get_ylim()))
        axes.set(**dict(zip(("xlim", "ylim"), limits, strict=True)))
        _draw_levels(axes, score.level)
        axes.set_title(task_label(stream))
        axes.set_xlabel(score.across)
    panels[0].set_ylabel(score.up)
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
    axes: Any, run: Run, stream: str, variant: str, score: _Score, style: tuple[str, str, int]
) -> None:
    forgotten = score.forgotten(run, stream, variant)
    kept = score.kept(run, stream, variant)
    if not forgotten.numbers:
        return
    colour, marker, size = style
    place = forgotten.mean()[0], kept.mean()[0]
    axes.errorbar(
        *place,
        xerr=_half_width(forgotten),
        yerr=_half_width(kept),
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


def _with_margin(limits: tuple[float, float], most: float) -> tuple[float, float]:
    """Return the range with a margin around the points, and not too narrow."""
    low, high = limits
    margin = max(3.0, (_NARROWEST - (high - low)) / 2)
    return max(0.0, low - margin), min(most, high + margin)


def _draw_levels(axes: Any, name: str) -> None:
    """Draw where the score is the same: the harmonic mean of both axes."""
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
            label=name,
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
