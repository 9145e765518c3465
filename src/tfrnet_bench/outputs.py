"""The outputs of a run: tables, figures and the report."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from tfrnet_bench.figures import write_figures
from tfrnet_bench.report.bench_page import bench_page
from tfrnet_bench.results import read_run
from tfrnet_bench.tables import write_tables


def write_outputs(folder: Path) -> list[Path]:
    """Write all outputs from the finished cells; figures only if matplotlib is installed."""
    run = read_run(folder)
    if not run.results:
        return []
    written = write_tables(run, folder / "tables")
    if importlib.util.find_spec("matplotlib"):
        written += write_figures(run, folder / "figures")
    return [*written, bench_page(run).write(folder / "report.html")]
