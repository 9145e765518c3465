"""What a run is shown as: tables, figures and the report."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from tfrnet.experiments.figures import write_figures
from tfrnet.experiments.report import write_report
from tfrnet.experiments.results import read_run
from tfrnet.experiments.tables import write_tables


def write_outputs(run: Path) -> list[Path]:
    """Write everything from the cells there are; figures only where matplotlib is installed."""
    found = read_run(run)
    written = write_tables(found.results, found.failed, run / "tables")
    if importlib.util.find_spec("matplotlib"):
        written += write_figures(found.results, run / "figures")
    return [*written, write_report(run, run / "report.html")]
