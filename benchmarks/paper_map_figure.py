"""The tables and the figure of notebook/paper-rule.md, from the cells of benchmarks.paper_map.

python -m benchmarks.paper_map_figure
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from scipy.stats import fisher_exact

from benchmarks.default_table import FOLDER, STREAMS, Row, read_cells
from benchmarks.neighbours_table import table
from benchmarks.paper_map import BUDGETS, GUARDS, heldout_change
from tfrnet.methods.tfr.config import TFRConfig
from tfrnet_bench.figures.style import BLACK, figure_style, new_figure, save

CELLS = "paper-map"
# Of fewer known items a share says nothing.
FEWEST_KNOWN = 10
_PAPER = TFRConfig.paper()
# Above this share the words are white.
_DARK = 55


def models_of(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Return the models of some cells with the kind of their knowledge, in order."""
    return list(dict.fromkeys((row["model"], row["knowledge"]) for row in rows))


def cell_of(
    rows: Sequence[Row], model: str, stream: str, budget: int | None, guard: float
) -> Row | None:
    """Return one cell, or None if it was not measured."""
    wanted = (model, stream, budget, guard)
    names = ("model", "task", "budget", "guard_relative")
    return next((row for row in rows if tuple(row[name] for name in names) == wanted), None)


def share(row: Row, part: str) -> float | None:
    """Return how much of the known items of a part is forgotten, where enough were known."""
    found = row[part]
    return found["forgotten"] if found["known"] >= FEWEST_KNOWN else None


def excess(row: Row) -> float | None:
    """Return by how many points more of the requested items are forgotten than of others."""
    requested, never = share(row, "requested"), share(row, "never")
    return None if requested is None or never is None else requested - never


def chance(row: Row) -> float:
    """Return how likely so large an excess is by chance (Fisher's exact test, one-sided)."""
    counts = []
    for part in (row["requested"], row["never"]):
        forgotten = round(part["known"] * (part["forgotten"] or 0) / 100)
        counts.append([forgotten, part["known"] - forgotten])
    return float(fisher_exact(counts, alternative="greater").pvalue)


def rise(row: Row) -> float:
    """Return the median of what candidates would multiply the guard loss by."""
    return median(row["guard_rises"])


def paper_table(rows: Sequence[Row]) -> str:
    """Return a line for each model and stream at the paper's tolerance: its budget and a quarter.

    The rise in nats is from the untouched model, so it is left out where a request was accepted.
    """
    lines = []
    for model, knowledge in models_of(rows):
        for stream in STREAMS:
            paper, quarter = (
                cell_of(rows, model, stream, budget, _PAPER.guard_relative)
                for budget in (_PAPER.budget, BUDGETS[0])
            )
            if not paper or not quarter:
                continue
            first, times = paper["guard_first"], rise(paper)
            lines.append(
                (
                    *(model, knowledge, stream),
                    f"{paper['requested']['known']} of {paper['requested']['items']}",
                    f"{first:.2f}",
                    "-" if paper["accepted"] else f"+{first * (times - 1):.1f} (x{times:.2f})",
                    f"{paper['accepted']} of {paper['requests']}",
                    f"x{rise(quarter):.2f}",
                    f"{quarter['accepted']} of {quarter['requests']}",
                )
            )
    return table(
        f"model, knowledge, stream, known, guard loss, candidate of {_PAPER.budget}, accepted, "
        f"candidate of {BUDGETS[0]}, accepted",
        lines,
    )


def comparable(rows: Sequence[Row]) -> list[Row]:
    """Return the cells that accepted a request and knew enough, in the figure's order."""
    places = [
        (model, stream, budget, guard)
        for model, _ in models_of(rows)
        for stream in STREAMS
        for budget in BUDGETS
        for guard in GUARDS
    ]
    found = [cell_of(rows, *place) for place in places]
    return [row for row in found if row and row["accepted"] and excess(row) is not None]


def accepted_table(rows: Sequence[Row]) -> str:
    """Return a line for each cell that accepted a request and knew enough."""
    return table(
        "model, stream, budget, tolerance, accepted, dormant, forgotten, never requested, p, "
        "held out, guard loss",
        [
            (
                *(row["model"], row["task"], row["budget"], f"{100 * row['guard_relative']:.0f} %"),
                *(f"{row['accepted']} of {row['requests']}", f"{row['dormant']:,}"),
                *(_percent(share(row, part)) for part in ("requested", "never")),
                f"{chance(row):.2f}",
                f"{heldout_change(row):+.1f}",
                f"x{row['guard_last'] / row['guard_first']:.2f}",
            )
            for row in comparable(rows)
        ],
    )


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} %"


def draw(rows: Sequence[Row]) -> Figure:
    """Draw a panel for each model and stream: budgets from left to right, tolerances upwards."""
    models = models_of(rows)
    figure = new_figure(11.0, 0.9 + 1.75 * len(models))
    panels = figure.subplots(len(models), len(STREAMS), squeeze=False)
    for line, (model, knowledge) in zip(panels, models, strict=True):
        for axes, stream in zip(line, STREAMS, strict=True):
            _draw_panel(axes, rows, model, stream)
            axes.set_title(f"{model} ({knowledge}), {stream}", fontsize=8)
    for axes in panels[:, 0]:
        axes.set_ylabel("guard's tolerance")
    for axes in panels[-1]:
        axes.set_xlabel("budget, channels a request")
    image = panels[0, 0].images[0]
    figure.colorbar(image, ax=panels, label="requests accepted, %", shrink=0.5, aspect=30)
    return figure


def _draw_panel(axes: Any, rows: Sequence[Row], model: str, stream: str) -> None:
    measured = {row["budget"] for row in rows if (row["model"], row["task"]) == (model, stream)}
    budgets = [budget for budget in BUDGETS if budget in measured]
    cells = [[cell_of(rows, model, stream, b, guard) for b in budgets] for guard in GUARDS]
    shares = [
        [100 * row["accepted"] / row["requests"] if row else math.nan for row in line]
        for line in cells
    ]
    colours = colormaps["YlGnBu"].with_extremes(bad="#EEEEEE")
    axes.imshow(shares, origin="lower", aspect="auto", vmin=0, vmax=100, cmap=colours)
    for y, line in enumerate(cells):
        for x, row in enumerate(line):
            axes.text(
                *(x, y, words_of(row) if row else "not run"),
                ha="center",
                va="center",
                fontsize=7,
                linespacing=1.1,
                color="white" if shares[y][x] > _DARK else BLACK,
            )
    axes.set_xticks(range(len(budgets)), [str(budget) for budget in budgets])
    axes.set_yticks(range(len(GUARDS)), [f"{100 * guard:.0f} %" for guard in GUARDS])
    axes.tick_params(length=0)
    if _PAPER.budget in budgets:
        corner = budgets.index(_PAPER.budget) - 0.5, GUARDS.index(_PAPER.guard_relative) - 0.5
        axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=BLACK, linewidth=1.6))


def words_of(row: Row) -> str:
    """Return what a cell of the figure says: accepted; forgotten and never requested; held out."""
    accepted = f"{row['accepted']} of {row['requests']}"
    if not row["accepted"]:
        return accepted
    shares = (share(row, part) for part in ("requested", "never"))
    forgotten = " | ".join("-" if each is None else f"{each:.0f}" for each in shares)
    return f"{accepted}\n{forgotten}\n{heldout_change(row):+.0f}"


def main(folder: Path = FOLDER) -> None:
    """Print the tables and write the figure."""
    rows = read_cells(CELLS)
    print(paper_table(rows), accepted_table(rows), sep="\n\n")
    with figure_style():
        save(draw(rows), folder, CELLS)


if __name__ == "__main__":
    main()
