"""What a model that only guesses scores on a stream: the floor to hold every other number to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import fmean

from tfrnet.evaluation.metrics.continual import trade_off
from tfrnet.experiments.tables.cells import Cells
from tfrnet.experiments.tables.seeds import Seeds, combine

# By task, and for what is to be forgotten, the accuracy of each way to answer without knowledge.
Floors = Mapping[str, Mapping[str, float]]

KIND = "stream"
# What is measured as the forget accuracy, beside the tasks' held-out items.
FORGET = "forget"
_GUESSED = "random"


def floors_by_seed(cells: Cells, stream: str) -> dict[int, Floors]:
    """Return the floors; all variants of a seed are measured on the same items: any will do."""
    return {
        seed: result["floors"]
        for variant in cells.variants(KIND, stream)
        for seed, result in cells.results(KIND, stream, variant).items()
    }


def guessed(cells: Cells, stream: str, part: str) -> Seeds:
    """Return the accuracy of guessing on a task's items, or on those to be forgotten."""
    return _read(cells, stream, lambda floors: floors.get(part, {}).get(_GUESSED))


def guessed_score(cells: Cells, stream: str, name: str) -> Seeds:
    """Return one of a stream's scores, as if every answer had been a guess from the beginning."""
    forget = guessed(cells, stream, FORGET)
    if name.startswith("forget"):
        return forget
    retain = _read(cells, stream, _mean_of_tasks)
    if name == "retain_average":
        return retain
    return combine([forget, retain], lambda pair: trade_off(*pair))


def _read(cells: Cells, stream: str, number: Callable[[Floors], float | None]) -> Seeds:
    floors = floors_by_seed(cells, stream)
    return Seeds({seed: number(found) for seed, found in floors.items()}, frozenset(floors))


def _mean_of_tasks(floors: Floors) -> float | None:
    found = [ways.get(_GUESSED) for part, ways in floors.items() if part != FORGET]
    numbers = [value for value in found if value is not None]
    return fmean(numbers) if numbers and len(numbers) == len(found) else None
