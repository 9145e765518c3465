"""The report of a folder, whichever of the two kinds it is."""

from __future__ import annotations

from pathlib import Path

from tfrnet.core.errors import InputError
from tfrnet.state.store import StateStore
from tfrnet_bench.report.bench_page import bench_page
from tfrnet_bench.report.bench_run import is_bench_run
from tfrnet_bench.report.page import Page
from tfrnet_bench.report.state_page import state_page


def make_report(folder: Path) -> Page:
    """Return the page of a bench run or of a state."""
    if is_bench_run(folder):
        return bench_page(folder)
    if StateStore.exists(folder):
        return state_page(folder)
    raise InputError(
        f"{folder} is neither a bench run (no bench.json) nor a state (no manifest.json)"
    )


def write_report(folder: Path, out: Path) -> Path:
    """Write the page of a bench run or of a state; return where it is."""
    out.write_text(make_report(folder).html, encoding="utf-8")
    return out
