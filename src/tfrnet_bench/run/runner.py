"""Running the cells of a grid, in one process or several that share only a folder.

A cell is locked while it runs, so that any number of processes, started by one command or by
several, can work on the same run.
"""

from __future__ import annotations

import multiprocessing
import time
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from tfrnet_bench.machine import Machine
from tfrnet_bench.run.context import RunContext
from tfrnet_bench.run.plan import BenchPlan
from tfrnet_bench.run.worker import Event, EventReport, Worker
from tfrnet_bench.run_folder import CellFolder


@dataclass
class Tally:
    """How a run ended: its cells by their outcome."""

    total: int
    done: list[str] = field(default_factory=list)  # by this command
    failed: dict[str, str] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)  # finished before
    left: list[str] = field(default_factory=list)  # not begun, or at work elsewhere


def run_bench(
    plan: BenchPlan,
    machine: Machine,
    out: Path,
    report: EventReport,
    minutes: float | None = None,
) -> Tally:
    """Run every cell that has no result for its inputs yet; start none after `minutes`."""
    deadline = time.time() + 60 * minutes if minutes is not None else None
    worker = Worker(plan, machine, out, time.time(), deadline)
    if machine.processes == 1:
        worker.work(report)
        crashes: dict[str, str] = {}
    else:
        crashes = _run_processes(worker, report)
    return _count(worker, crashes)


def _run_processes(worker: Worker, report: EventReport) -> dict[str, str]:
    """Run several processes; return the cells whose process died.

    Each process has its own pipe: a shared queue has a lock, and a process that is killed while
    holding it would block all others.
    """
    spawn = multiprocessing.get_context("spawn")
    processes: dict[Connection, BaseProcess] = {}
    for number in range(worker.machine.processes):
        reader, writer = spawn.Pipe(duplex=False)
        arguments = (_on_device(worker, number), writer)
        processes[reader] = spawn.Process(target=_work, args=arguments, daemon=True)
        processes[reader].start()
        writer.close()  # so that the pipe ends with the process
    at_work: dict[Connection, str] = {}
    try:
        _listen(set(processes), at_work, report)
    finally:
        for process in processes.values():
            process.terminate()
        for process in processes.values():
            process.join()
    crashes = {}
    for reader, key in at_work.items():
        crashes[key] = f"its process ended with exit code {processes[reader].exitcode}"
        report(Event("failed", key, crashes[key]))
    return crashes


def _listen(readers: set[Connection], at_work: dict[Connection, str], report: EventReport) -> None:
    """Forward the events of all processes until they end, noting the cell each one is at."""
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


def _work(worker: Worker, writer: Connection) -> None:
    try:
        worker.work(writer.send)
    except KeyboardInterrupt:
        pass  # the parent says so, once
    finally:
        writer.close()


def _on_device(worker: Worker, number: int) -> Worker:
    """Return the worker of a process, on one of the available GPUs."""
    devices = worker.machine.devices
    device = devices[number % len(devices)]
    return replace(worker, machine=replace(worker.machine, device=device))


def _count(worker: Worker, crashes: dict[str, str]) -> Tally:
    cells = worker.plan.cells()
    context = RunContext(worker.plan, worker.machine)
    tally = Tally(len(cells), failed=dict(crashes))
    for cell in cells:
        folder, key = CellFolder(worker.out, cell.key), str(cell.key)
        if folder.known_inputs() == context.inputs(cell):
            fresh = folder.result.stat().st_mtime >= worker.started
            (tally.done if fresh else tally.kept).append(key)
            tally.failed.pop(key, None)
        elif folder.error.is_file() and folder.error.stat().st_mtime >= worker.started:
            tally.failed[key] = folder.read_error()
        elif key not in tally.failed:
            tally.left.append(key)
    return tally
