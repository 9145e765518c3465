"""What all figures share: fonts, colours, and how they are saved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfrnet.core.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which colour-blind readers can tell apart.
ORANGE, SKY, GREEN, YELLOW = "#E69F00", "#56B4E9", "#009E73", "#F0E442"
BLUE, RED, PURPLE, BLACK = "#0072B2", "#D55E00", "#CC79A7", "#000000"
GREY = "#8A8A8A"

_SETTINGS = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Arial", "Helvetica"],
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    # The same results give the same file; text stays text that can be searched.
    "svg.hashsalt": "tfrnet",
    "svg.fonttype": "none",
}
_DPI = 150


@contextmanager
def figure_style() -> Iterator[None]:
    """Set the style within a `with` block; other users of matplotlib keep their settings."""
    try:
        import matplotlib
    except ImportError as error:
        raise InputError(
            "figures need matplotlib, which is not installed: pip install 'tfrnet[plot]'"
        ) from error
    with matplotlib.rc_context({**matplotlib.rcParamsDefault, **_SETTINGS, "backend": "agg"}):
        yield


def new_figure(width: float, height: float, layout: str = "constrained") -> Figure:
    """Return an empty figure of a size in inches, without a window."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout=layout)


def shared_legend(figure: Figure, panels: Iterable[Any], columns: int, title: str = "") -> None:
    """Add one legend for all panels below them."""
    handles: dict[str, Any] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(
        handles.values(),
        handles.keys(),
        loc="outside lower center",
        ncols=columns,
        title=title or None,
    )


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write a figure as SVG and PNG, without dates or versions in them."""
    metadata: dict[str, dict[str, Any]] = {
        "svg": {"Date": None, "Creator": None},
        "png": {"Software": None},
    }
    paths = []
    for ending, entries in metadata.items():
        path = folder / f"{name}.{ending}"
        figure.savefig(path, dpi=_DPI, metadata=entries)
        figure.set_layout_engine("none")  # the layout is found: the next file has the same
        paths.append(path)
    return paths
