"""Eight readers beside a fast writer: each always sees one whole generation, and no damage."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.campaign.processes import in_processes
from tests.campaign.result import Result
from tests.state.made_up import commit, create
from tfrnet.core.errors import StateError
from tfrnet.method_state import verify_state
from tfrnet.state.backup import back_up
from tfrnet.state.store import StateStore

EXPECTED = "one whole generation"
READERS = 8


def run(count: int, seed: int, work: Path) -> Result:
    """Read for `count` seconds."""
    result = Result("readers", EXPECTED, seed)
    folder = work / "state"
    create(folder).close()
    end = time.monotonic() + count
    jobs: list[Callable[[], Any]] = [lambda: _write(folder, end, seed)]
    jobs += [lambda number=number: _read(folder, work, end, number) for number in range(READERS)]
    commits, *reads = in_processes(jobs)
    result.count("commits beside them", commits)
    for counts, wrong in reads:
        for what, number in counts.items():
            result.count(what, number)
        result.wrong += wrong
    return result


def _write(folder: Path, end: float, seed: int) -> int:
    """Commit, prune and roll back without a pause, at least twice; return how often."""
    chance = random.Random(seed)
    number = 0
    with StateStore.open(folder, write=True) as store:
        while time.monotonic() < end or number < 2:
            number += 1
            keep = chance.choice([1, 2, 5])
            if chance.random() < 0.1:
                store.rollback(chance.choice(store.layout.numbers()), keep)
            else:
                commit(store, number, keep=keep)
    return number


def _read(folder: Path, work: Path, end: float, number: int) -> tuple[dict[str, int], list[str]]:
    counts: dict[str, int] = {}
    wrong: list[str] = []
    ways = {
        "open and load": lambda: StateStore.open(folder).load(),
        "verify": lambda: _verified(folder),
        "history": lambda: len(StateStore.open(folder).entries),
        "backup": lambda: _backed_up(folder, work / f"{number}.tar"),
    }
    turn = number
    while time.monotonic() < end:
        name = list(ways)[turn % len(ways)]
        turn += 1
        counts[name] = counts.get(name, 0) + 1
        try:
            ways[name]()
        except Exception as error:
            wrong.append(f"{name}: {error!r}")
    return counts, wrong


def _verified(folder: Path) -> None:
    failed = [check for check in verify_state(folder) if not check.passed]
    if failed:
        raise StateError(f"{failed[0].name}: {failed[0].detail}")


def _backed_up(folder: Path, out: Path) -> None:
    back_up(folder, out)
    out.unlink()
