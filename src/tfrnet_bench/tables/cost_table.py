"""What a request costs in time and memory, and how many were accepted."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

from tfrnet_bench.constants import STREAM, TASK_ORACLE, UNTOUCHED
from tfrnet_bench.results import CellResult, Run
from tfrnet_bench.seeds import NOT_RUN, Seeds, combine, count_text
from tfrnet_bench.tables.labels import in_order, task_label, variant_label
from tfrnet_bench.tables.table import Table


def cost_tables(run: Run) -> list[Table]:
    """Return one table with the cost of every variant that does anything."""
    variants = in_order(set(run.variants(STREAM)) - {UNTOUCHED, TASK_ORACLE})
    if not variants:
        return []
    streams = [task_label(stream) for stream in run.streams(STREAM)]
    requests = run.checkpoints()[-1]
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
            [_row(run, variant) for variant in variants],
            "Seconds per request, mean over requests; largest memory of any request; seconds of "
            f"evaluation per stream; accepted of {requests} requests. "
            "Mean over n seeds ± half of Student's 95 % interval. " + _places(run),
        )
    ]


def _row(run: Run, variant: str) -> list[str]:
    def seeds(read: Callable[[CellResult], float | None]) -> list[Seeds]:
        return [run.seeds(STREAM, stream, variant, read) for stream in run.streams(STREAM)]

    def together(read: Callable[[CellResult], float | None]) -> list[Seeds]:
        """Return those of the streams that the variant was tried on."""
        return [found for found in seeds(read) if found.absence() != NOT_RUN]

    seconds, accepted = seeds(_seconds), seeds(_accepted)
    return [
        variant_label(variant),
        *(found.text() for found in seconds),
        combine(together(_peak), max).text(),
        combine(together(_evaluation)).text(1),
        *(found.text(1) for found in accepted),
        count_text(accepted),
    ]


def _seconds(result: CellResult) -> float | None:
    return fmean(result.request_seconds) if result.request_seconds else None


def _peak(result: CellResult) -> float | None:
    found = result.request_bytes("peak")
    return max(found) / 1e9 if found else None


def _evaluation(result: CellResult) -> float:
    return float(result.seconds["evaluation"])


def _accepted(result: CellResult) -> float:
    return float(sum(request["outcome"] == "accepted" for request in result.requests))


def _places(run: Run) -> str:
    """Say where the results were computed, without which times mean nothing."""
    found = {"{device} in {dtype}".format(**result.provenance) for result in run.of_kind(STREAM)}
    return f"Computed on {' and '.join(sorted(found))}." if found else ""
