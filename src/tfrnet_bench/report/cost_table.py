"""The table of cost: seconds and memory of a request."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

from tfrnet_bench.report.bench_run import BenchRun, Cell
from tfrnet_bench.report.pick import figure_at, present
from tfrnet_bench.report.table import MISSING, Row, Table, Value, mean, number, text


def cost_table(run: BenchRun) -> Table | None:
    """Return seconds and memory of a request by method, kind of cell and device."""
    groups: dict[tuple[str, str, str], list[Cell]] = defaultdict(list)
    for cell in run.cells:
        if any("total" in request.get("seconds", {}) for request in cell.requests):
            device = str(cell.result.get("provenance", {}).get("device", "unknown"))
            groups[cell.variant, cell.kind, device].append(cell)
    rows = [Row([*map(text, key), *_costs(group)]) for key, group in sorted(groups.items())]
    if not rows:
        return None
    return Table(
        "Cost of a request",
        [
            *("Method", "Kind", "Device", "Seconds", "Slowest", "Peak GB", "Before GB"),
            *("State MB", "Cell seconds"),
        ],
        rows,
        {
            "Seconds": "Mean over cells of the mean over their requests.",
            "Slowest": "Seconds of the slowest request of all.",
            "Peak GB": "Highest memory of any request, the model's included (1 GB = 10^9 bytes).",
            "Before GB": "Memory before the request began, at most.",
            "State MB": "Size of what one request commits, at most.",
            "Cell seconds": "Mean over cells of their time in all, evaluation included.",
        },
    )


def _costs(cells: Sequence[Cell]) -> list[Value]:
    requests = [request for cell in cells for request in cell.requests]
    by_cell = [present(r.get("seconds", {}).get("total") for r in cell.requests) for cell in cells]
    memory = {
        name: present(request.get("memory", {}).get(name) for request in requests)
        for name in ("peak", "before", "state")
    }
    highest = {name: max(values, default=None) for name, values in memory.items()}
    return [
        mean([fmean(seconds) for seconds in by_cell if seconds], 2),
        number(max((s for seconds in by_cell for s in seconds), default=None), 2),
        _scaled(highest["peak"], 1e9),
        _scaled(highest["before"], 1e9),
        _scaled(highest["state"], 1e6),
        mean(present(figure_at(cell.result, "seconds", "total") for cell in cells), 1),
    ]


def _scaled(value: float | None, unit: float) -> Value:
    return MISSING if value is None else number(value / unit, 2)
