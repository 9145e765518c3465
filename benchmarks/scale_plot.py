"""The results of benchmarks.scale as a figure.

    python -m benchmarks.scale_plot FILE.json OUT.svg

A PNG of the same name is written beside the SVG.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, ScalarFormatter

from benchmarks.scale_case import ALL_CHANNELS, METHOD_LENGTH, OVER_LENGTHS, VARIANTS
from benchmarks.scale_shapes import SHAPES
from tfrnet_bench.figures.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    figure_style,
    new_figure,
    save,
    shared_legend,
)

Record = dict[str, Any]
# Colour and marker of every shape's line.
_SHAPE_STYLES = {
    "tiny": (GREY, "v"),
    "135m": (SKY, "o"),
    "1b": (ORANGE, "s"),
    "7b": (PURPLE, "D"),
}
_GROWTH_PANELS = {
    "seconds a request": {"seconds": (1.0, "seconds", BLUE)},
    "memory, MB": {
        "resident_bytes": (1e6, "process", ORANGE),
        "gpu_bytes": (1e6, "GPU", GREEN),
    },
    "on disk, MB": {
        "generation_bytes": (1e6, "newest state", BLUE),
        "ledger_bytes": (1e6, "ledger", PURPLE),
        "folder_bytes": (1e6, "all", BLACK),
    },
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args(arguments)
    document = json.loads(options.results.read_text())
    with figure_style():
        save(draw(document), options.out.parent, options.out.stem)


def draw(document: Record) -> Figure:
    """Draw methods, lengths and growth, one below the other, as far as there are results."""
    cases = [record for record in document["cases"] if "error" not in record]
    rows: list[tuple[float, Callable[[Any], None]]] = []
    shapes = [shape for shape in SHAPES if _of_methods(document["cases"], shape)]
    if shapes:
        tallest = max(len(_of_methods(document["cases"], shape)) for shape in shapes)
        height = 1.1 + 0.27 * tallest
        rows.append((height, lambda part: _draw_methods(part, document["cases"], shapes)))
    if any(_over_lengths(cases, shape) for shape in SHAPES):
        rows.append((3.2, lambda part: _draw_lines(part, cases)))
    streams = [stream for stream in document["growth"] if stream["requests"]]
    if streams:
        rows.append((2.9, lambda part: _draw_growth(part, streams[-1])))
    if not rows:
        raise SystemExit("the file holds no result to draw")
    figure = new_figure(11.0, sum(height for height, _ in rows) + 0.3)
    figure.suptitle(f"{document['machine']['device']}, {document['machine']['dtype']}")
    parts = figure.subfigures(len(rows), 1, height_ratios=[h for h, _ in rows], squeeze=False)
    for part, (_, draw_row) in zip(parts[:, 0], rows, strict=True):
        draw_row(part)
    return figure


def _draw_methods(part: Any, cases: Sequence[Record], shapes: Sequence[str]) -> None:
    """Draw bars of seconds with a mark at the floor, a panel for each shape."""
    for axes, shape in zip(part.subplots(1, len(shapes), squeeze=False)[0], shapes, strict=True):
        records = _of_methods(cases, shape)
        places = list(range(len(records)))
        # A logarithmic bar has no zero to begin at: all begin below the lowest floor.
        floors = [record["floor"]["seconds"] for record in records if "error" not in record]
        for place, record in zip(places, records, strict=True):
            _draw_bar(axes, place, record, min(floors, default=1.0) / 2)
        axes.set_yticks(places, [record["case"]["method"] for record in records])
        axes.invert_yaxis()
        axes.set_xscale("log")
        axes.margins(x=0.12)
        axes.set_title(f"{shape}, {METHOD_LENGTH} tokens")
        axes.set_xlabel("seconds a request (black: floor)")


def _draw_bar(axes: Any, place: int, record: Record, left: float) -> None:
    if "error" in record:
        axes.text(
            0.02,
            place,
            record["error"].split(":")[0],
            transform=axes.get_yaxis_transform(),
            va="center",
            fontsize=8,
            color=GREY,
        )
        return
    colour = BLUE if record["case"]["method"].startswith("tfr") else ORANGE
    seconds, least = record["seconds"], record["floor"]["seconds"]
    axes.barh(place, seconds - left, left=left, height=0.7, color=colour)
    axes.plot([least], [place], "|", color=BLACK, markersize=9, markeredgewidth=1.6)
    axes.annotate(
        f"{seconds:.3g}",
        (seconds, place),
        (3, 0),
        textcoords="offset points",
        va="center",
        fontsize=7,
    )


def _draw_lines(part: Any, cases: Sequence[Record]) -> None:
    """Draw seconds and the share of the rate over lengths, and seconds over channels."""
    time, share, channels = part.subplots(1, 3)
    for shape, (colour, marker) in _SHAPE_STYLES.items():
        look = {"color": colour, "marker": marker, "label": shape}
        records = _over_lengths(cases, shape)
        lengths = [record["case"]["length"] for record in records]
        if records:
            time.plot(lengths, [record["seconds"] for record in records], **look)
            shares = [100 * record["scoring"]["needed_share_of_rate"] for record in records]
            share.plot(lengths, shares, **look)
        few = _over_channels(cases, shape)
        if few:
            counts = [record["channels"] for record in few]
            channels.plot(counts, [record["seconds"] for record in few], **look)
    _label(time, "tokens an example", "seconds a request", logarithmic="xy")
    _label(share, "tokens an example", "scoring, % of the matrix rate", logarithmic="x")
    share.set_ylim(bottom=0)
    _label(channels, f"channels ({METHOD_LENGTH} tokens)", "seconds a request", "xy")
    ticks = sorted({r["case"]["length"] for shape in SHAPES for r in _over_lengths(cases, shape)})
    for axes in (time, share):
        axes.set_xticks(ticks)
        axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.xaxis.set_minor_formatter(NullFormatter())
    time.set_title(f"{OVER_LENGTHS} over lengths")
    channels.set_title(f"{OVER_LENGTHS} over channels")
    share.set_title("scoring over lengths")
    shared_legend(part, [time], len(_SHAPE_STYLES))


def _draw_growth(part: Any, stream: Record) -> None:
    columns = stream["requests"]
    for axes, (title, lines) in zip(part.subplots(1, 3), _GROWTH_PANELS.items(), strict=True):
        for name, (unit, label, colour) in lines.items():
            values = [value / unit for value in columns[name]]
            if any(values):
                numbers = range(1, len(values) + 1)
                axes.plot(numbers, values, color=colour, label=label, linewidth=1.2)
        _label(axes, "request", title)
        tops = [_largest(columns[name]) / unit for name, (unit, _, _) in lines.items()]
        axes.set_ylim(0, 1.3 * max(tops))
        if len(lines) > 1:
            axes.legend()
    part.suptitle(f"a stream on {stream['shape']}, {stream['settings']['max_length']} tokens")


def _label(axes: Any, x: str, y: str, logarithmic: str = "") -> None:
    axes.set(xlabel=x, ylabel=y)
    if "x" in logarithmic:
        axes.set_xscale("log")
    if "y" in logarithmic:
        axes.set_yscale("log")
    axes.grid(color=GREY, alpha=0.25, linewidth=0.6)


def _largest(values: Sequence[float]) -> float:
    """Return the largest after the first, which also loads kernels and would hide all others."""
    return max(values[1:] or values)


def _of_methods(cases: Sequence[Record], shape: str) -> list[Record]:
    """Return one record of every method, in the table's order."""
    found = _by(cases, "method", shape=shape, channels=ALL_CHANNELS, length=METHOD_LENGTH)
    return [found[method] for method in VARIANTS if method in found]


def _over_lengths(cases: Sequence[Record], shape: str) -> list[Record]:
    found = _by(cases, "length", shape=shape, channels=ALL_CHANNELS, method=OVER_LENGTHS)
    return [found[length] for length in sorted(found)]


def _over_channels(cases: Sequence[Record], shape: str) -> list[Record]:
    found = _by(cases, "channels", shape=shape, length=METHOD_LENGTH, method=OVER_LENGTHS)
    return sorted(found.values(), key=lambda record: record["channels"])


def _by(cases: Sequence[Record], key: str, **wanted: Any) -> dict[Any, Record]:
    """Return the records of some cases by what differs between them; of several the newest."""
    return {
        record["case"][key]: record for record in cases if wanted.items() <= record["case"].items()
    }


if __name__ == "__main__":
    main()
