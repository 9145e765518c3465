"""The tables of notebook/private.md: LUME and KnowUnDo, from the cells of `tfrnet bench`.

python -m benchmarks.private_table
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from tfrnet_bench.document import fill_document
from tfrnet_bench.honest import honest
from tfrnet_bench.results import CellResult, read_run
from tfrnet_bench.tables.published_table import published_tables
from tfrnet_bench.tables.table import Table

ROOT = Path(__file__).parent
RUN = ROOT / "results" / "private"
PAGE = ROOT / "notebook" / "private.md"
_STREAMS = {"lume": "LUME", "knowundo": "KnowUnDo"}
_ACTING = "tfr"


def private_tables() -> list[Table]:
    """Return what the default did to each stream, in all and by quarter, and published scores."""
    return [_stream_table(), _course_table(), *published_tables(read_run(RUN))]


def cells_of(stream: str) -> list[CellResult]:
    """Return the cells in which something was forgotten, by seed."""
    found = [
        cell for cell in read_run(RUN).results if (cell.stream, cell.variant) == (stream, _ACTING)
    ]
    return sorted(found, key=lambda cell: cell.seed)


def _stream_table() -> Table:
    rows = []
    for stream, title in _STREAMS.items():
        for cell in cells_of(stream):
            found = honest(cell)
            accepted = sum(request["outcome"] == "accepted" for request in cell.requests)
            seconds = fmean(request["seconds"]["total"] for request in cell.requests)
            rows.append(
                [
                    *(title, cell.seed),
                    *(f"{found[name]:.1f}" for name in ("honest_trade_off", "forgotten", "kept")),
                    f"{found['unseen']:.0f}",
                    f"x{found['witness']:.0f}",
                    f"x{found['perplexity_ratio']:.1f}",
                    f"{accepted} of {len(cell.requests)}",
                    f"{seconds:.0f}",
                ]
            )
    return Table(
        "streams",
        "The default on people's data, 20 requests",
        [
            *("Set", "Seed", "Honest Trade-off", "Forgotten %", "Kept %", "Not yet requested %"),
            *("Fresh loss", "Fluency", "Accepted", "Seconds a request"),
        ],
        rows,
    )


def _course_table() -> Table:
    rows = []
    for stream, title in _STREAMS.items():
        cells = cells_of(stream)
        for place, point in enumerate(cells[0].checkpoints):
            done = point["request"]
            rows.append(
                [
                    *(title, done),
                    f"{fmean(_kept(cell, place) for cell in cells):.0f}",
                    f"{fmean(_guard(cell, done) for cell in cells):.3f}",
                    f"{fmean(_depth(cell, done) for cell in cells):.1f}" if done else "",
                ]
            )
    return Table(
        "course",
        "The same after 0, 5, 10, 15 and 20 requests, means over seeds",
        [
            "Set",
            "Requests",
            "Held-out, word for word %",
            "Guard loss",
            "Forget loss of the last five",
        ],
        rows,
    )


def _kept(cell: CellResult, place: int) -> float:
    return fmean(cell.checkpoints[place]["retain"].values())


def _guard(cell: CellResult, done: int) -> float:
    """Return the guard loss after so many requests."""
    if done == len(cell.requests):
        last = cell.requests[-1]
        name = "guard_loss_after" if last["outcome"] == "accepted" else "guard_loss_before"
        return float(last[name])
    return float(cell.requests[done]["guard_loss_before"])


def _depth(cell: CellResult, done: int) -> float:
    """Return the mean forget loss of five requests, each right after it."""
    return fmean(request["forget_loss_after"] for request in cell.requests[done - 5 : done])


if __name__ == "__main__":
    PAGE.write_text(fill_document(PAGE.read_text(), private_tables()))
