"""A self-contained HTML page of a bench run or a state, readable offline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tfrnet.core.errors import InputError
from tfrnet.state.store import StateStore
from tfrnet_bench.run_folder import is_run_folder

if TYPE_CHECKING:
    from tfrnet_bench.report.page import Page


def make_report(folder: Path, answers: Sequence[Mapping[str, str]] = ()) -> Page:
    """Return the page of a folder, whichever of the two kinds it is.

    `answers` are words for the page of a state to show, whose ledger has none.
    """
    # The pages import torch, so a folder that has none is told before they are.
    if is_run_folder(folder):
        if answers:
            raise InputError(
                f"{folder} is a bench run, whose page already shows its answers; leave out --texts"
            )
        from tfrnet_bench.report.bench_page import bench_page
        from tfrnet_bench.results import read_run

        return bench_page(read_run(folder))
    if StateStore.exists(folder):
        from tfrnet_bench.report.state_page import state_page

        return state_page(folder, answers)
    raise InputError(
        f"{folder} is neither a bench run (no bench.json) nor a state (no manifest.json)"
    )
