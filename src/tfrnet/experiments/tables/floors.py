"""What knowing nothing scores on the tasks of each stream."""

from __future__ import annotations

from tfrnet.experiments.results import Result
from tfrnet.experiments.tables.cells import Cells
from tfrnet.experiments.tables.labels import task_label
from tfrnet.experiments.tables.seeds import Seeds
from tfrnet.experiments.tables.table import Table

KIND = "stream"


def floor_tables(cells: Cells) -> list[Table]:
    """Return one table: the accuracy of each way to answer without knowledge."""
    rows = []
    for stream in cells.streams(KIND):
        # All variants of a seed are measured on the same items: any of them will do.
        by_seed: dict[int, Result] = {}
        for variant in cells.variants(KIND, stream):
            by_seed |= cells.results(KIND, stream, variant)
        floors = {seed: result["floors"] for seed, result in by_seed.items()}
        names = {
            (task, name): 0 for tasks in floors.values() for task in tasks for name in tasks[task]
        }
        for task, name in names:
            found = Seeds(
                {seed: tasks.get(task, {}).get(name) for seed, tasks in floors.items()},
                frozenset(floors),
            )
            rows.append(
                [task_label(stream), task_label(task), name, found.text(), str(len(found.numbers))]
            )
    if not rows:
        return []
    return [
        Table(
            "floors",
            "What knowing nothing scores",
            ["Stream", "Task", "Answering by", "Accuracy", "n"],
            rows,
            "An accuracy at or below these floors is no sign of knowledge. They differ between "
            "seeds with the items that are drawn. "
            "A floor has no Trade-off: it is no model that forgets one task and keeps the others.",
            text_columns=3,
        )
    ]
