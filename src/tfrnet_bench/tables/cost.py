"""What a request costs in time and memory, and how many were accepted."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

from tfrnet_bench.results import Result
from tfrnet_bench.tables.cells import Cells
from tfrnet_bench.tables.labels import UNTOUCHED, task_label, variant_label
from tfrnet_bench.tables.seeds import Seeds, combine, count_text
from tfrnet_bench.tables.table import Table

KIND = "stream"


def cost_tables(cells: Cells) -> list[Table]:
    """Return the costs of every variant that does something, if there is one."""
    variants = [variant for variant in cells.variants(KIND) if variant != UNTOUCHED]
    if not variants:
        return []
    streams = [task_label(stream) for stream in cells.streams(KIND)]
    requests = cells.checkpoints()[-1]
    return [
        Table(
            "cost",
            "What a request costs",
            [
                "Method",
                *(f"Seconds {stream}" for stream in streams),
                "Peak GB",
                "Evaluation, s",
                *(f"Accepted {stream}" for stream in streams),
                "n",
            ],
            [_row(cells, variant) for variant in variants],
            "Seconds per request, mean over requests; largest memory of any request; seconds of "
            f"evaluation per stream; accepted of {requests} requests. "
            "Mean over n seeds ± half of Student's 95 % interval. " + _places(cells),
        )
    ]


def _row(cells: Cells, variant: str) -> list[str]:
    def seeds(read: Callable[[Result], float | None]) -> list[Seeds]:
        return [cells.seeds(KIND, stream, variant, read) for stream in cells.streams(KIND)]

    seconds, accepted = seeds(_seconds), seeds(_accepted)
    return [
        variant_label(variant),
        *(found.text() for found in seconds),
        combine(seeds(_peak), max).text(),
        combine(seeds(_evaluation)).text(1),
        *(found.text(1) for found in accepted),
        count_text(accepted),
    ]


def _seconds(result: Result) -> float | None:
    found = [request["seconds"]["total"] for request in result["requests"]]
    return fmean(found) if found else None


def _peak(result: Result) -> float | None:
    found = [request["memory"]["peak"] for request in result["requests"]]
    return max(found) / 1e9 if found else None


def _evaluation(result: Result) -> float:
    return float(result["seconds"]["evaluation"])


def _accepted(result: Result) -> float:
    return float(sum(request["outcome"] == "accepted" for request in result["requests"]))


def _places(cells: Cells) -> str:
    """Return where the results were computed: a time says nothing without that."""
    found = {"{device} in {dtype}".format(**result["provenance"]) for result in cells.of_kind(KIND)}
    return f"Computed on {' and '.join(sorted(found))}." if found else ""
