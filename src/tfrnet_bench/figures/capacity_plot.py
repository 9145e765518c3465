"""What suppression takes from a model, and what recovery gives back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tfrnet_bench.constants import STREAM
from tfrnet_bench.figures.series import seed_count, seed_values, with_results
from tfrnet_bench.figures.style import BLUE, RED, new_figure, shared_legend
from tfrnet_bench.results import CellResult, Run
from tfrnet_bench.tables.labels import task_label

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_VARIANTS = {
    "tfr": ("with recovery", BLUE, "-", "o"),
    "tfr-no-recovery": ("without recovery", RED, "--", "s"),
}


def draw_capacity(run: Run) -> Figure | None:
    """Draw dormant channels above, recovered ones below; a column for each stream."""
    _, streams = with_results(run, _VARIANTS)
    if not streams:
        return None
    figure = new_figure(3.3 * len(streams) + 0.4, 5.0)
    dormant, recovered = figure.subplots(2, len(streams), sharex=True, squeeze=False)
    for upper, lower, stream in zip(dormant, recovered, streams, strict=True):
        counts = [
            _draw_lines(upper, run, stream, lambda result: result.structure["dormant"]),
            _draw_lines(lower, run, stream, _recovered_so_far),
        ]
        upper.set_title(f"{task_label(stream)}, {seed_count(max(counts))}")
        _add_percentages(upper, run, stream)
        lower.set_xlabel("request")
        for axes in (upper, lower):
            # Whole channels, and a scale even where there are none.
            axes.set_ylim(0, max(1, axes.get_ylim()[1]))
            axes.locator_params(axis="y", integer=True)
    dormant[0].set_ylabel("dormant channels")
    recovered[0].set_ylabel("channels recovered so far")
    shared_legend(figure, dormant, 2, "Mean of seeds; band: lowest to highest seed")
    return figure


def _draw_lines(axes: Any, run: Run, stream: str, read: Callable[[CellResult], list[float]]) -> int:
    """Draw a line for each variant; return the number of seeds."""
    counts = [0]
    for variant, (label, colour, line, marker) in _VARIANTS.items():
        values = seed_values(run, stream, variant, read)
        if values is None:
            continue
        requests = np.arange(values.shape[1])
        axes.fill_between(
            requests,
            values.min(axis=0),
            values.max(axis=0),
            color=colour,
            alpha=0.15,
            linewidth=0,
        )
        axes.plot(
            requests,
            values.mean(axis=0),
            line,
            marker=marker,
            markevery=5,
            markersize=4,
            color=colour,
            label=label,
        )
        counts.append(len(values))
    return max(counts)


def _recovered_so_far(result: CellResult) -> list[float]:
    return [0.0, *np.cumsum(result.structure["recovered"]).tolist()]


def _add_percentages(axes: Any, run: Run, stream: str) -> None:
    """Add a second scale: the loss of capacity is the dormant channels' share of all."""
    totals = {
        result.structure["channels"]
        for variant in _VARIANTS
        for result in run.by_seed(STREAM, stream, variant).values()
    }
    if len(totals) != 1:
        return
    total = totals.pop()
    scale = axes.secondary_yaxis(
        "right", functions=(lambda count: 100 * count / total, lambda share: share * total / 100)
    )
    scale.set_ylabel("capacity loss, %")
