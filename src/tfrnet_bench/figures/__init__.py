"""The figures of the paper's experiments, from the results of a bench run."""

from __future__ import annotations

from pathlib import Path

from tfrnet_bench.figures.capacity_plot import draw_capacity
from tfrnet_bench.figures.reemergence_plot import draw_reemergence
from tfrnet_bench.figures.structure_plot import draw_structure
from tfrnet_bench.figures.style import figure_style, save
from tfrnet_bench.figures.tradeoff_plot import draw_honest, draw_tradeoff
from tfrnet_bench.results import Run

_FIGURES = {
    "tradeoff": draw_tradeoff,
    "honest": draw_honest,
    "structure": draw_structure,
    "capacity": draw_capacity,
    "reemergence": draw_reemergence,
}


def write_figures(run: Run, folder: Path) -> list[Path]:
    """Write every figure that has something to show, as SVG and PNG; return the paths written."""
    paths: list[Path] = []
    with figure_style():
        folder.mkdir(parents=True, exist_ok=True)
        for name, draw in _FIGURES.items():
            figure = draw(run)
            if figure is not None:
                paths += save(figure, folder, name)
    return paths
