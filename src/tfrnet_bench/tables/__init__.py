"""The tables of the paper's experiments, from the results of a bench run."""

from __future__ import annotations

from pathlib import Path

from tfrnet_bench.results import Run
from tfrnet_bench.tables.ablation_table import ablation_tables
from tfrnet_bench.tables.cost_table import cost_tables
from tfrnet_bench.tables.floor_table import floor_tables
from tfrnet_bench.tables.main_table import main_tables
from tfrnet_bench.tables.published_table import published_tables
from tfrnet_bench.tables.reemergence_table import reemergence_tables
from tfrnet_bench.tables.render import csv_text, latex, markdown
from tfrnet_bench.tables.robust_table import robust_tables
from tfrnet_bench.tables.structure_table import structure_tables
from tfrnet_bench.tables.table import Table
from tfrnet_bench.tables.tofu_table import tofu_tables
from tfrnet_bench.tables.yardstick_table import yardstick_tables

_MAKERS = (
    yardstick_tables,
    main_tables,
    floor_tables,
    ablation_tables,
    tofu_tables,
    published_tables,
    structure_tables,
    robust_tables,
    reemergence_tables,
    cost_tables,
)
_FORMS = {"md": markdown, "csv": csv_text, "tex": latex}


def all_tables(run: Run) -> list[Table]:
    """Return every table that has something to show."""
    return [table for make in _MAKERS for table in make(run)]


def write_tables(run: Run, folder: Path) -> list[Path]:
    """Write every table to the folder as Markdown, CSV and LaTeX; return the paths written."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for table in all_tables(run):
        for ending, render in _FORMS.items():
            path = folder / f"{table.name}.{ending}"
            path.write_text(render(table), encoding="utf-8")
            paths.append(path)
    return paths
