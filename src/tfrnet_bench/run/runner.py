"""Running the cells of a grid, in one process or several; a folder is all that they share.

A cell is locked while it runs, so that any number of processes, started by one command or by
several, can work on the same run.
"""

from __future__ import annotations

import json
import multiprocessing
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from tfrnet.core import files
from tfrnet.core.errors import InterruptError, StateError
from tfrnet.core.lock import FolderLock
from tfrnet_bench.run.cell import Cell, CellFolder
from tfrnet_bench.run.plan import BenchPlan
from tfrnet_bench.run.progress import drop_progress
from tfrnet_bench.run.robust_cell import run_robust_cell
from tfrnet_bench.run.stream import CellRun, Report
from tfrnet_bench.run.stream_cell import run_stream_cell
from tfrnet_bench.run.tofu_cell import run_tofu_cell
from tfrnet_bench.run.workshop import Machine, Workshop, prepare_process

_RUNNERS = {"stream": run_stream_cell, "tofu": run_tofu_cell, "robust": run_robust_cell}


@dataclass(frozen=True)
class Event:
    """Something that happened to a cell: begun, done or failed, or just what it does now."""

    kind: str
    key: str = ""
    text: str = ""
    seconds: float = 0.0


@dataclass
class Tally:
    """How a run ended: the cells by what became of them."""

    total: int
    done: list[str] = field(default_factory=list)  # by this command
    failed: dict[str, str] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)  # finished before
    left: list[str] = field(default_factory=list)  # not begun, or at work elsewhere


def run_bench(
    plan: BenchPlan,
    machine: Machine,
    out: Path,
    report: Callable[[Event], None],
    minutes: float | None = None,
) -> Tally:
    """Run every cell that has no result for its inputs yet. After `minutes` none is begun."""
    deadline = time.time() + 60 * minutes if minutes is not None else None
    shift = _Shift(plan, machine, out, time.time(), deadline)
    if machine.processes == 1:
        shift.work(report)
        crashes: dict[str, str] = {}
    else:
        crashes = _run_processes(shift, report)
    return _count(plan, machine, out, shift.started, crashes)


@dataclass(frozen=True)
class _Shift:
    """What a process needs to know to go to work."""

    plan: BenchPlan
    machine: Machine
    out: Path
    started: float
    deadline: float | None

    def work(self, report: Callable[[Event], None]) -> None:
        """Take one free cell after another until none is left."""
        prepare_process(self.machine.device)
        shop = Workshop(self.plan, self.machine)
        for cell in self.plan.cells():
            if self.deadline is not None and time.time() > self.deadline:
                return
            with _claimed(CellFolder(self.out, cell)) as folder:
                if folder and not self._settled(folder, shop.inputs(cell)):
                    self._run(cell, folder, shop, report)

    def _settled(self, folder: CellFolder, inputs: str) -> bool:
        """Tell whether a cell has its result, or has failed in this very run."""
        if folder.known_inputs() == inputs:
            return True
        return folder.error.is_file() and folder.error.stat().st_mtime >= self.started

    def _run(
        self, cell: Cell, folder: CellFolder, shop: Workshop, report: Callable[[Event], None]
    ) -> None:
        started = datetime.now(UTC).isoformat(timespec="seconds")
        report(Event("begun", cell.key))
        begin = time.perf_counter()
        say: Report = lambda text: report(Event("now", cell.key, text))  # noqa: E731
        try:
            run = CellRun.begin(cell, shop, folder.path, started, say)
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
                    "cell": cell.key,
                    "error": text,
                    "traceback": traceback.format_exc(),
                    "when": started,
                }
            )
            report(Event("failed", cell.key, text, time.perf_counter() - begin))
        else:
            report(Event("done", cell.key, _headline(result), time.perf_counter() - begin))
        finally:
            shop.check_model()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()


def _headline(result: dict[str, Any]) -> str:
    if result["kind"] == "stream":
        scores = result["scores"]
        return (
            f"F {scores['forget_average']:.2f}, R {scores['retain_average']:.2f}, "
            f"Trade-off {scores['trade_off']:.2f}"
        )
    if result["kind"] == "tofu":
        gap, utility = result["privacy"]["mia_gap"], result["tofu"]["model_utility"]
        return f"MIA gap {gap:.4f}, model utility {utility:.4f}"
    return f"{len(result['robustness']['attacks'])} attacks"


@contextmanager
def _claimed(folder: CellFolder) -> Iterator[CellFolder | None]:
    """Hold a cell against other processes; None if one of them has it."""
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


def _run_processes(shift: _Shift, report: Callable[[Event], None]) -> dict[str, str]:
    """Work with several processes; return the cells that died with one of them.

    Each process has a pipe of its own. A queue has a lock in common, and a process that is killed
    while it holds the lock leaves all others waiting for it.
    """
    context = multiprocessing.get_context("spawn")
    workers: dict[Connection, BaseProcess] = {}
    for number in range(shift.machine.processes):
        reader, writer = context.Pipe(duplex=False)
        arguments = (_at_device(shift, number), writer)
        workers[reader] = context.Process(target=_work, args=arguments, daemon=True)
        workers[reader].start()
        writer.close()  # so that the pipe ends with the process
    at_work: dict[Connection, str] = {}
    try:
        _listen(set(workers), at_work, report)
    finally:
        for worker in workers.values():
            worker.terminate()
        for worker in workers.values():
            worker.join()
    crashes = {}
    for reader, key in at_work.items():
        crashes[key] = f"its process ended with exit code {workers[reader].exitcode}"
        report(Event("failed", key, crashes[key]))
    return crashes


def _listen(
    readers: set[Connection], at_work: dict[Connection, str], report: Callable[[Event], None]
) -> None:
    """Pass on what the processes report until all have ended; note which cell each is at."""
    while readers:
        for reader in wait(list(readers)):
            assert isinstance(reader, Connection)
            try:
                event = reader.recv()
            except (EOFError, OSError):  # it ended, perhaps in the middle of a message
                readers.discard(reader)
                continue
            if event.kind == "begun":
                at_work[reader] = event.key
            elif event.kind in ("done", "failed"):
                at_work.pop(reader, None)
            report(event)


def _work(shift: _Shift, writer: Connection) -> None:
    try:
        shift.work(writer.send)
    except KeyboardInterrupt:
        pass  # the parent says so, once
    finally:
        writer.close()


def _at_device(shift: _Shift, number: int) -> _Shift:
    """Spread processes over the GPUs there are."""
    devices = shift.machine.devices
    device = devices[number % len(devices)]
    return replace(shift, machine=replace(shift.machine, device=device))


def _count(
    plan: BenchPlan, machine: Machine, out: Path, started: float, crashes: dict[str, str]
) -> Tally:
    cells = plan.cells()
    shop = Workshop(plan, machine)
    tally = Tally(len(cells), failed=dict(crashes))
    for cell in cells:
        folder = CellFolder(out, cell)
        if folder.known_inputs() == shop.inputs(cell):
            fresh = folder.result.stat().st_mtime >= started
            (tally.done if fresh else tally.kept).append(cell.key)
            tally.failed.pop(cell.key, None)
        elif folder.error.is_file() and folder.error.stat().st_mtime >= started:
            tally.failed[cell.key] = json.loads(folder.error.read_text())["error"]
        elif cell.key not in tally.failed:
            tally.left.append(cell.key)
    return tally
