"""What knowing nothing scores on the tasks of each stream."""

from __future__ import annotations

from tfrnet.data.protocol import STREAMS
from tfrnet.experiments.tables.cells import Cells
from tfrnet.experiments.tables.labels import task_label
from tfrnet.experiments.tables.seeds import Seeds
from tfrnet.experiments.tables.table import Table

KIND = "stream"


# What is measured as the forget accuracy, beside the tasks' held-out items.
_FORGET = "forget"


def floor_tables(cells: Cells) -> list[Table]:
    """Return one table: the accuracy of each way to answer without knowledge."""
    rows = [row for stream in cells.streams(KIND) for row in _rows(cells, stream)]
    if not rows:
        return []
    return [
        Table(
            "floors",
            "What knowing nothing scores",
            ["Stream", "Items", "Answering by", "Accuracy", "n"],
            rows,
            "An accuracy at or below these floors is no sign of knowledge. They differ between "
            "seeds with the items that are drawn. "
            "A floor has no Trade-off: it is no model that forgets one task and keeps the others.",
            text_columns=3,
        )
    ]


def _rows(cells: Cells, stream: str) -> list[list[str]]:
    # All variants of a seed are measured on the same items: any of them will do.
    floors = {
        seed: result["floors"]
        for variant in cells.variants(KIND, stream)
        for seed, result in cells.results(KIND, stream, variant).items()
    }
    names = {(task, name) for tasks in floors.values() for task in tasks for name in tasks[task]}
    tried = frozenset(floors)
    rows = []
    for task, name in sorted(names, key=_order):
        found = Seeds({s: tasks.get(task, {}).get(name) for s, tasks in floors.items()}, tried)
        items = "to forget" if task == _FORGET else task_label(task)
        rows.append([task_label(stream), items, name, found.text(), str(len(found.numbers))])
    return rows


def _order(floor: tuple[str, str]) -> tuple[bool, int, str, str]:
    """Return a key: what is to be forgotten comes first, then the tasks as streams are listed."""
    task, name = floor
    return task != _FORGET, STREAMS.index(task) if task in STREAMS else len(STREAMS), task, name
