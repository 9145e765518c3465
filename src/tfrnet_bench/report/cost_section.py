"""The page's table of cost: seconds and memory of a request."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

from tfrnet_bench.report.values import figure_at, mean, number
from tfrnet_bench.results import CellResult, Run
from tfrnet_bench.tables.table import Table, Value


def cost_table(run: Run) -> Table | None:
    """Return seconds and memory of a request by method, kind of cell and device."""
    groups: dict[tuple[str, str, str], list[CellResult]] = defaultdict(list)
    for result in run.results:
        if result.request_seconds:
            groups[result.variant, result.kind, result.device or "unknown"].append(result)
    if not groups:
        return None
    return Table(
        "cost-by-device",
        "Cost of a request",
        [
            *("Method", "Kind", "Device", "Seconds", "Slowest", "Peak GB", "Before GB"),
            *("State MB", "Cell seconds"),
        ],
        [[*key, *_costs(group)] for key, group in sorted(groups.items())],
        text_columns=3,
        hints={
            "Seconds": "Mean over cells of the mean over their requests.",
            "Slowest": "Seconds of the slowest request of all.",
            "Peak GB": "Highest memory of any request, the model's included (1 GB = 10^9 bytes).",
            "Before GB": "Memory before the request began, at most.",
            "State MB": "Size of what one request commits, at most.",
            "Cell seconds": "Mean over cells of their time in all, evaluation included.",
        },
    )


def _costs(group: Sequence[CellResult]) -> list[Value]:
    return [
        mean((fmean(result.request_seconds) for result in group), 2),
        number(max(second for result in group for second in result.request_seconds), 2),
        _most(group, "peak", 1e9),
        _most(group, "before", 1e9),
        _most(group, "state", 1e6),
        mean((figure_at(result.seconds, "total") for result in group), 1),
    ]


def _most(group: Sequence[CellResult], name: str, unit: float) -> Value:
    found = [size / unit for result in group for size in result.request_bytes(name)]
    return number(max(found, default=None), 2)
