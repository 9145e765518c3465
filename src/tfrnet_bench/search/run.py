"""Running a search: one process or several, and a file that grows by a line per trial."""

from __future__ import annotations

import json
import multiprocessing
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

from tfrnet.core.errors import InputError
from tfrnet.data.protocol import Split
from tfrnet_bench.constants import UNTOUCHED
from tfrnet_bench.machine import Machine, prepare_process
from tfrnet_bench.search.board import Board
from tfrnet_bench.search.choice import Objective
from tfrnet_bench.search.plan import Place, SearchPlan
from tfrnet_bench.search.rows import Row, cut_torn_line, read_rows
from tfrnet_bench.search.trial import Stage, TooLateError, Trial, run_trial, run_untouched

_WITHOUT_RESULT = ("error", "late")


def run_search(
    plan: SearchPlan,
    machine: Machine,
    results: Path,
    report: Callable[[Row], None],
    minutes: float | None = None,
    objective: Objective = "honest",
) -> list[Row]:
    """Run the trials whose results are not in the file yet, adding each as it comes.

    After `minutes` all ends: a trial that would take longer is not begun, by what its method took
    so far, and one that does is given up. A trial that fails is reported, with `error`, and tried
    again by the next search.
    """
    done = read_rows(results)
    splits = plan.splits(machine.source)  # first: data that is not there is noticed at once
    _refuse_other_data(plan.own(done), splits, results)
    deadline = None if minutes is None else time.time() + 60 * minutes
    results.parent.mkdir(parents=True, exist_ok=True)
    cut_torn_line(results)
    board = Board(plan, done, objective)
    with results.open("a") as file:
        for row in _run(board, machine, splits, deadline):
            if not any(name in row for name in _WITHOUT_RESULT):
                file.write(json.dumps(row) + "\n")
                file.flush()
                done.append(row)
            report(row)
    return done


def _refuse_other_data(rows: Sequence[Row], splits: Mapping[Place, Split], file: Path) -> None:
    """Raise if trials were measured on other items, so that none are compared with them."""
    for row in rows:
        # Rows of before do not say it.
        if row.get("data") not in (None, splits[row["stream"], row["seed"]].digest):
            raise InputError(
                f"{file} has trials on other data ({row['stream']}, seed {row['seed']}); give "
                "--out a new folder, or the data of before"
            )


def _run(
    board: Board, machine: Machine, splits: dict[Place, Split], deadline: float | None
) -> Iterator[Row]:
    """Yield each trial as it ends; those that end late or fail are not begun again."""
    arguments = (board.plan, machine, splits, deadline)
    busy: set[str] = set()
    if machine.processes == 1:
        _start(*arguments)
        while trial := _next(board, busy, deadline):
            busy.add(trial.key)
            row = _one(trial, board.untouched(trial.stream, trial.seed))
            _take_in(board, row)
            yield row
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(machine.processes, context, _start, arguments) as pool:
        running: set[Future[dict[str, Any]]] = set()
        while True:
            while len(running) < machine.processes and (trial := _next(board, busy, deadline)):
                busy.add(trial.key)
                before = board.untouched(trial.stream, trial.seed)
                running.add(pool.submit(_one, trial, before))
            if not running:
                return
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                row = future.result()
                _take_in(board, row)
                yield row


def _next(board: Board, busy: set[str], deadline: float | None) -> Trial | None:
    left = None if deadline is None else deadline - time.time()
    for trial in board.waiting(busy):
        if left is None or (left > 0 and board.expected_seconds(trial) <= left):
            return trial
    return None


def _take_in(board: Board, row: Row) -> None:
    if not any(name in row for name in _WITHOUT_RESULT):
        board.add(row)


# In a process of its own

_here: tuple[Stage, dict[Place, Split]] | None = None


def _start(
    plan: SearchPlan, machine: Machine, splits: dict[Place, Split], deadline: float | None
) -> None:
    """Load what all trials of a process share."""
    global _here
    prepare_process(machine.device)
    loaded = machine.load(plan.model, plan.dtype)
    _here = Stage(loaded, machine, plan.checkpoints, plan.setup, deadline), splits


def _one(trial: Trial, untouched: Row | None) -> dict[str, Any]:
    assert _here is not None
    stage, splits = _here
    split = splits[trial.stream, trial.seed]
    try:
        if trial.method == UNTOUCHED:
            return run_untouched(stage, trial, split)
        assert untouched is not None
        return run_trial(stage, trial, split, untouched)
    except TooLateError:
        return {"key": trial.key, "late": True}
    except Exception:  # one trial that fails must not end the others
        return {"key": trial.key, "error": traceback.format_exc()[-3000:]}
