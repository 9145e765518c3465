"""The tables and the figure of notebook/paper-rule.md, from the cells of benchmarks.paper_map.

python -m benchmarks.paper_map_figure
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from matplotlib.figure import Figure

from benchmarks.default_table import FOLDER, STREAMS, Row, read_cells
from benchmarks.neighbours_table import table
from benchmarks.paper_map import BUDGETS, GUARDS, heldout_change
from tfrnet.methods.tfr.config import TFRConfig
from tfrnet_bench.figures.style import BLACK, GREY, figure_style, new_figure, save

CELLS = "paper-map"
# Of fewer known items a share says nothing.
FEWEST_KNOWN = 10
_PAPER = TFRConfig.paper()


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


def acted(row: Row) -> int:
    """Return how many accepted requests suppressed a channel."""
    return sum(row["selected"][number - 1] > 0 for number in row["accepted_at"])


def paper_table(rows: Sequence[Row]) -> str:
    """Return a line for each model and stream with the paper's budget and tolerance."""
    head = (
        "model, knowledge, stream, known, accepted, a candidate's guard loss, dormant, forgotten, "
        "never requested, held out"
    )
    cells = (
        cell_of(rows, model, stream, _PAPER.budget, _PAPER.guard_relative)
        for model, _ in models_of(rows)
        for stream in STREAMS
    )
    return table(
        head,
        [
            (
                *(row["model"], row["knowledge"], row["task"]),
                f"{row['requested']['known']} of {row['requested']['items']}",
                f"{row['accepted']} of {row['requests']}",
                f"x{median(row['guard_rises']):.2f}",
                f"{row['dormant']:,} ({100 * row['dormant'] / row['channels']:.2f} %)",
                _percent(share(row, "requested")),
                _percent(share(row, "never")),
                f"{heldout_change(row):+.1f}",
            )
            for row in cells
            if row
        ],
    )


def tolerance_table(rows: Sequence[Row]) -> str:
    """Return a line for each model, tolerance and budget: sums and means over the streams."""
    lines = []
    for model, knowledge in models_of(rows):
        for guard in GUARDS:
            for budget in BUDGETS:
                found = (cell_of(rows, model, stream, budget, guard) for stream in STREAMS)
                own = [row for row in found if row]
                if not own:
                    continue
                # Where nothing is known there is nothing to compare.
                known = [row for row in own if excess(row) is not None]
                lines.append(
                    (
                        *(model, knowledge, f"{100 * guard:.0f} %", budget),
                        " / ".join(str(row["accepted"]) for row in own),
                        " / ".join(str(acted(row)) for row in own),
                        *(_mean_share(known, part) for part in ("requested", "never")),
                        f"{fmean(map(heldout_change, own)):+.1f}",
                        f"x{fmean(row['guard_last'] / row['guard_first'] for row in own):.2f}",
                    )
                )
    return table(
        "model, knowledge, tolerance, budget, accepted, acted, forgotten, never requested, "
        "held out, guard loss",
        lines,
    )


def _mean_share(rows: Sequence[Row], part: str) -> str:
    return _percent(fmean(row[part]["forgotten"] for row in rows) if rows else None)


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
    figure.colorbar(
        image, ax=panels, label="known requested items forgotten, %", shrink=0.5, aspect=30
    )
    return figure


def _draw_panel(axes: Any, rows: Sequence[Row], model: str, stream: str) -> None:
    from matplotlib import colormaps

    cells = [[cell_of(rows, model, stream, b, guard) for b in BUDGETS] for guard in GUARDS]
    shares = [[share(row, "requested") if row else None for row in line] for line in cells]
    values = [[float("nan") if each is None else each for each in line] for line in shares]
    colours = colormaps["YlGnBu"].with_extremes(bad="#EEEEEE")
    axes.imshow(values, origin="lower", aspect="auto", vmin=0, vmax=100, cmap=colours)
    for y, line in enumerate(cells):
        for x, row in enumerate(line):
            dark = (shares[y][x] or 0) > 55
            words = words_of(row) if row else "not\nrun"
            axes.text(
                *(x, y, words),
                ha="center",
                va="center",
                fontsize=6.5,
                linespacing=1.1,
                color="white" if dark else BLACK if row else GREY,
            )
    axes.set_xticks(range(len(BUDGETS)), [str(budget) for budget in BUDGETS])
    axes.set_yticks(range(len(GUARDS)), [f"{100 * guard:.0f} %" for guard in GUARDS])
    axes.tick_params(length=0)
    paper = (BUDGETS.index(_PAPER.budget or 0) - 0.5, GUARDS.index(_PAPER.guard_relative) - 0.5)
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle(paper, 1, 1, fill=False, edgecolor=BLACK, linewidth=1.4))


def words_of(row: Row) -> str:
    """Return what a cell of the figure says: accepted, forgotten and never requested, held out."""
    shares = (share(row, part) for part in ("requested", "never"))
    forgotten = " | ".join("-" if each is None else f"{each:.0f}" for each in shares)
    return f"{row['accepted']} of {row['requests']}\n{forgotten}\n{heldout_change(row):+.0f}"


def main(folder: Path = FOLDER) -> None:
    """Print the tables and write the figure."""
    rows = read_cells(CELLS)
    print(paper_table(rows), tolerance_table(rows), sep="\n\n")
    with figure_style():
        save(draw(rows), folder, CELLS)


if __name__ == "__main__":
    main()
