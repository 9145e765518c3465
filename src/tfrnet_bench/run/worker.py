"""One process of a run: it takes one free cell after another."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from tfrnet.core import files
from tfrnet.core.errors import InterruptError, StateError
from tfrnet.core.lock import FolderLock
from tfrnet_bench.constants import ROBUST, STREAM, TOFU
from tfrnet_bench.machine import Machine, prepare_process
from tfrnet_bench.run.cell import Cell
from tfrnet_bench.run.cell_run import CellRun
from tfrnet_bench.run.context import RunContext
from tfrnet_bench.run.plan import BenchPlan
from tfrnet_bench.run.progress import drop_progress
from tfrnet_bench.run.robust_cell import run_robust_cell
from tfrnet_bench.run.stream_cell import run_stream_cell
from tfrnet_bench.run.tofu_cell import run_tofu_cell
from tfrnet_bench.run_folder import CellFolder

_RUNNERS = {STREAM: run_stream_cell, TOFU: run_tofu_cell, ROBUST: run_robust_cell}


@dataclass(frozen=True)
class Event:
    """What happened to a cell: it has `begun`, is `done` or `failed`, or what it does `now`."""

    kind: str
    key: str = ""
    text: str = ""
    seconds: float = 0.0


EventReport = Callable[[Event], None]


@dataclass(frozen=True)
class Worker:
    """A process of a run. `started` is when the run began, `deadline` when new cells stop."""

    plan: BenchPlan
    machine: Machine
    out: Path
    started: float
    deadline: float | None

    def work(self, report: EventReport) -> None:
        """Run one free cell after another until none is left."""
        prepare_process(self.machine.device)
        context = RunContext(self.plan, self.machine)
        for cell in self.plan.cells():
            if self.deadline is not None and time.time() > self.deadline:
                return
            with _claimed(CellFolder(self.out, cell.key)) as folder:
                if folder and not self._is_settled(folder, context.inputs(cell)):
                    self._run(cell, folder, context, report)

    def _is_settled(self, folder: CellFolder, inputs: str) -> bool:
        """Tell whether a cell has its result, or has already failed in this run."""
        if folder.known_inputs() == inputs:
            return True
        return folder.error.is_file() and folder.error.stat().st_mtime >= self.started

    def _run(
        self, cell: Cell, folder: CellFolder, context: RunContext, report: EventReport
    ) -> None:
        started = datetime.now(UTC).isoformat(timespec="seconds")
        key = str(cell.key)
        report(Event("begun", key))
        begin = time.perf_counter()

        def report_stage(text: str) -> None:
            report(Event("now", key, text))

        try:
            run = CellRun.begin(cell, context, folder.path, started, report_stage)
            result, samples = _RUNNERS[cell.kind](run)
            if samples:
                folder.write_samples(samples)
            folder.write_result(result)
            drop_progress(folder.path)
        except (KeyboardInterrupt, InterruptError):
            raise
        except Exception as error:
            text = f"{type(error).__name__}: {' '.join(str(error).split())}"
            folder.write_error(
                {
                    "cell": key,
                    "error": text,
                    "traceback": traceback.format_exc(),
                    "when": started,
                }
            )
            report(Event("failed", key, text, time.perf_counter() - begin))
        else:
            report(Event("done", key, _headline(result), time.perf_counter() - begin))
        finally:
            context.check_model()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()


@contextmanager
def _claimed(folder: CellFolder) -> Iterator[CellFolder | None]:
    """Lock a cell; None if another process has it."""
    files.make_folder(folder.path)
    try:
        lock = FolderLock(folder.path)
    except StateError:
        yield None
        return
    try:
        yield folder
    finally:
        lock.release()


def _headline(result: dict[str, Any]) -> str:
    if result["kind"] == STREAM:
        scores = result["scores"]
        return (
            f"F {scores['forget_average']:.2f}, R {scores['retain_average']:.2f}, "
            f"Trade-off {scores['trade_off']:.2f}"
        )
    if result["kind"] == TOFU:
        gap, utility = result["privacy"]["mia_gap"], result["tofu"]["model_utility"]
        return f"MIA gap {gap:.4f}, model utility {utility:.4f}"
    return f"{len(result['robustness']['attacks'])} attacks"
