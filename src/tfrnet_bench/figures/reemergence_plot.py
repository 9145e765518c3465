"""The accuracy on every request's items after every request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tfrnet_bench.constants import STREAM
from tfrnet_bench.figures.series import Array, seed_count, seed_values
from tfrnet_bench.figures.style import BLACK, new_figure
from tfrnet_bench.results import CellResult, Run
from tfrnet_bench.tables.labels import task_label, variant_label

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_reemergence(run: Run, variant: str = "tfr") -> Figure | None:
    """Draw A[i, t] of a variant, a panel for each stream, the mean over seeds."""
    found = {
        stream: matrices
        for stream in run.streams(STREAM)
        if (matrices := seed_values(run, stream, variant, _matrix)) is not None
    }
    if not found:
        return None
    figure = new_figure(3.1 * len(found) + 1.0, 3.9, layout="compressed")
    panels = figure.subplots(1, len(found), squeeze=False)[0]
    image: Any = None
    for axes, (stream, matrices) in zip(panels, found.items(), strict=True):
        image = _draw_matrix(axes, matrices.mean(axis=0))
        axes.set_title(f"{task_label(stream)}, {seed_count(len(matrices))}")
        axes.set_xlabel("after request t (0: before all)")
    panels[0].set_ylabel("items of request i")
    figure.colorbar(image, ax=panels, label="accuracy, %", shrink=0.85)
    figure.suptitle(f"{variant_label(variant)}: outlined, items already requested (i ≤ t)")
    return figure


def _matrix(result: CellResult) -> Array:
    """Return the accuracies, request by request, from before the first one on."""
    accuracy = result.forgetting["accuracy"]
    return np.column_stack([accuracy["before"], accuracy["matrix"]])


def _draw_matrix(axes: Any, matrix: Array) -> Any:
    requests = len(matrix)
    # Cells are centred on their numbers: columns from 0, rows from 1.
    extent = (-0.5, requests + 0.5, 0.5, requests + 0.5)
    image = axes.imshow(
        matrix, origin="lower", extent=extent, cmap="cividis", vmin=0, vmax=100, aspect="equal"
    )
    # What was not requested yet (i > t) is pale: only the rest can come back.
    pending = np.arange(1, requests + 1)[:, None] > np.arange(requests + 1)[None, :]
    veil = np.zeros((*pending.shape, 4))
    veil[pending] = (1, 1, 1, 0.6)
    axes.imshow(veil, origin="lower", extent=extent, aspect="equal")
    axes.plot(*_outline(requests), color=BLACK, linewidth=1.4, clip_on=False)
    ticks = [number for number in range(requests + 1) if number % 5 == 0]
    axes.set(xticks=ticks, yticks=[1, *ticks[1:]])
    axes.spines[:].set_visible(False)
    return image


def _outline(requests: int) -> tuple[list[float], list[float]]:
    """Return the corners around the cells with i <= t: up the steps, then back along two sides."""
    xs, ys = [0.5], [0.5]
    for request in range(1, requests + 1):
        xs += [request - 0.5, request + 0.5]
        ys += [request + 0.5, request + 0.5]
    return [*xs, requests + 0.5, 0.5], [*ys, 0.5, 0.5]
