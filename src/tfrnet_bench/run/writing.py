"""What a run is shown as: tables, figures and the report."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import asdict
from pathlib import Path

from tfrnet.core import files
from tfrnet.core.errors import InputError
from tfrnet_bench.figures import write_figures
from tfrnet_bench.report import write_report
from tfrnet_bench.results import read_run
from tfrnet_bench.run.plan import BenchPlan
from tfrnet_bench.tables import write_tables

# What all cells of a run have in common.
_COMMON = ("model", "tofu_model", "oracle", "dtype", "sizes", "tofu", "attack", "reduced")


def record_plan(run: Path, plan: BenchPlan) -> None:
    """Add a plan to those that the run was made with.

    Raise if it could not be shown in one table with them: another model, or other sizes.
    """
    place = run / "bench.json"
    plans = json.loads(place.read_text())["plans"] if place.is_file() else []
    # Through JSON, so that tuples compare equal to what was read.
    wanted = json.loads(json.dumps(asdict(plan)))
    for name in _COMMON:
        if any(earlier[name] != wanted[name] for earlier in plans):
            raise InputError(
                f"the run in {run} was made with another {name}; choose another folder with --out"
            )
    if wanted not in plans:
        plans.append(wanted)
    files.make_folder(run)
    described = {"schema": "tfrnet.bench/1", "plans": plans}
    files.replace_file(place, json.dumps(described, indent=1).encode() + b"\n")


def write_outputs(run: Path) -> list[Path]:
    """Write everything from the cells there are; figures only where matplotlib is installed."""
    found = read_run(run)
    if not found.results:
        return []
    written = write_tables(found.results, found.failed, run / "tables")
    if importlib.util.find_spec("matplotlib"):
        written += write_figures(found.results, run / "figures")
    return [*written, write_report(run, run / "report.html")]
