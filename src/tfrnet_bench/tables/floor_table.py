"""The chance baselines on the tasks of each stream."""

from __future__ import annotations

from tfrnet.data.protocol import STREAMS
from tfrnet_bench.constants import STREAM
from tfrnet_bench.results import Run
from tfrnet_bench.seeds import Seeds
from tfrnet_bench.tables.guessing import FORGET, floors_by_seed
from tfrnet_bench.tables.labels import task_label
from tfrnet_bench.tables.table import Table


def floor_tables(run: Run) -> list[Table]:
    """Return one table with the accuracy of each way to answer without knowledge."""
    rows = [row for stream in run.streams(STREAM) for row in _rows(run, stream)]
    if not rows:
        return []
    return [
        Table(
            "floors",
            "What knowing nothing scores",
            ["Stream", "Items", "Answering by", "Accuracy", "n"],
            rows,
            "An accuracy at or below these floors is no sign of knowledge. They differ between "
            "seeds with the items that are drawn. What guessing everything would score is in the "
            "main and ablation tables.",
            text_columns=3,
        )
    ]


def _rows(run: Run, stream: str) -> list[list[str]]:
    floors = floors_by_seed(run, stream)
    names = {(task, name) for tasks in floors.values() for task in tasks for name in tasks[task]}
    tried = frozenset(floors)
    rows = []
    for task, name in sorted(names, key=_order):
        found = Seeds({s: tasks.get(task, {}).get(name) for s, tasks in floors.items()}, tried)
        items = "to forget" if task == FORGET else task_label(task)
        rows.append([task_label(stream), items, name, found.text(), str(len(found.numbers))])
    return rows


def _order(floor: tuple[str, str]) -> tuple[bool, int, str, str]:
    """Return a sort key: first what is to be forgotten, then the tasks in the streams' order."""
    task, name = floor
    return task != FORGET, STREAMS.index(task) if task in STREAMS else len(STREAMS), task, name
