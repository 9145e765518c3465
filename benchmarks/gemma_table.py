"""The tables of notebook/gemma.md: four other methods beside TFR-Net on Gemma 3 270M.

python -m benchmarks.gemma_table
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from benchmarks.default_table import STREAMS, Row, lost_accuracy, mean, of, read_cells
from benchmarks.neighbours_table import table

METHODS = ("default", "deep", "o3", "simnpo", "npo", "graddiff")
_REQUESTS = 20


def whole(rows: Sequence[Row], method: str, stream: str) -> list[Row]:
    """Return a method's cells of a stream that ran to its end, by seed."""
    return [row for row in of(rows, method, stream) if row["requests"] == _REQUESTS]


def scores_table(rows: Sequence[Row]) -> str:
    """Return a line for each method: the honest score and the paper's, means over seeds."""
    lines = [(method, *scores_of(rows, method)) for method in METHODS]
    return table("method, honest, arithmetic, OpenBookQA, BoolQ, paper's, seeds", lines)


def scores_of(rows: Sequence[Row], method: str) -> list[str]:
    """Return a method's honest score, in all and by stream, the paper's, and how many seeds ran."""
    cells = [whole(rows, method, stream) for stream in STREAMS]
    honest, paper = (
        fmean(fmean(row[name] for row in own) for own in cells) for name in ("honest", "trade_off")
    )
    by_stream = [
        f"{mean(own, 'honest', '.1f')} ({mean(own, 'forgetting')}, {mean(own, 'keeping')})"
        for own in cells
    ]
    seeds = " / ".join(str(len(own)) for own in cells)
    return [f"{honest:.1f}", *by_stream, f"{paper:.1f}", seeds]


def side_table(rows: Sequence[Row]) -> str:
    """Return a line for each method: what else it did, by stream."""
    lines = []
    for method in METHODS:
        cells = [whole(rows, method, stream) for stream in STREAMS]
        lines.append(
            (
                method,
                " / ".join(mean(own, "not_yet") for own in cells),
                " / ".join(f"{fmean(map(lost_accuracy, own)):+.1f}" for own in cells),
                " / ".join(f"{fmean(row['fresh_loss'][-1] for row in own):.2f}" for own in cells),
                " / ".join(mean(own, "nats_after") for own in cells),
            )
        )
    return table("method, not yet, R, fresh nats, nats", lines)


if __name__ == "__main__":
    found = read_cells("gemma")
    print(scores_table(found), side_table(found), sep="\n\n")
