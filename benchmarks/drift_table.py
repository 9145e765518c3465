"""The tables of notebook/drift.md, from the cells of benchmarks.calibrated.

python -m benchmarks.drift_table
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import fmean

from benchmarks.default_table import (
    STREAMS,
    Row,
    both,
    distance,
    lost_accuracy,
    mean,
    of,
    read_cells,
)
from benchmarks.neighbours_table import table

_LOWERED = "m10"
# How many requests are followed.
_FIRST = 5
_FIRST_OF_LONG = 10
# Losses are stored to four decimals.
_STORED = 5e-5


def halves_table() -> str:
    """Return the first half of two streams: what the first requests left, then and later."""
    held = of(read_cells("wrong-answers"), "median", "openbookqa")
    lines = []
    for lowered in of(read_cells("repair"), _LOWERED, "openbookqa"):
        (before,) = (row for row in held if row["seed"] == lowered["seed"])
        for name, row in (("d", before), (_LOWERED, lowered)):
            points = [row["checkpoints"][place] for place in (1, 2)]
            assert [point["request"] for point in points] == [_FIRST, 2 * _FIRST]
            lines.append(
                (
                    *(str(row["seed"]), name),
                    *(f"{fmean(point['by_request'][:_FIRST]):.1f}" for point in points),
                    *(f"{fmean(first_losses(point)):.2f}" for point in points),
                    f"{fmean(points[1]['by_request'][: 2 * _FIRST]):.1f}",
                    f"{fmean(points[1]['heldout'].values()):.1f}",
                    f"x{row['fresh_loss'][2] / row['fresh_loss'][0]:.2f}",
                )
            )
    head = "seed, variant, right after 5, after 10, nats after 5, after 10, all ten right, R, fresh"
    return table(head, lines)


def streams_table() -> str:
    """Return a line for each stream, without and with a fall: means over the same seeds."""
    lines = []
    for stream, name, own in variants():
        lines.append(
            (
                *(stream, name, f"{mean(own, 'honest', '.1f')} {both(own)}"),
                *(mean(own, "not_yet"), f"{fmean(map(lost_accuracy, own)):+.1f}"),
                f"x{mean(own, 'fresh_ratio', '.2f')}",
                f"x{fmean(row['guard_last'] / row['guard_first'] for row in own):.2f}",
                mean(own, "trade_off", ".1f"),
            )
        )
    return table("stream, variant, H, not yet, R, fresh, guard, T", lines)


def back_table() -> str:
    """Return what becomes of requests 1 to 5, beside a model that never knew them."""
    oracles = {(row["task"], row["seed"]): row for row in read_cells("default-oracle")}
    lines = []
    for stream, name, own in variants():
        points = [(row["checkpoints"][1], row["checkpoints"][-1]) for row in own]
        assert all(first["request"] == _FIRST for first, _ in points)
        known = [oracles[stream, row["seed"]] for row in own]
        pairs = [(last, oracle) for (_, last), oracle in zip(points, known, strict=True)]
        right = [fmean(fmean(p[i]["by_request"][:_FIRST]) for p in points) for i in (0, 1)]
        nats = [fmean(fmean(first_losses(p[i])) for p in points) for i in (0, 1)]
        lines.append(
            (
                *(stream, name),
                *(f"{each:.1f}" for each in right),
                *(f"{each:.2f}" for each in nats),
                f"{fmean(map(drift, own)):+.3f}",
                f"{fmean(fmean(last['by_request']) for last, _ in pairs):.1f}",
                f"{fmean(fmean(oracle['by_request']) for oracle in known):.1f}",
                f"{fmean(distance(*pair) for pair in pairs):.2f}",
            )
        )
    return table(
        "stream, variant, right after 5, after 20, nats after 5, after 20, log-odds a request, "
        "all right, retrained model, distance of losses",
        lines,
    )


def long_table() -> str:
    """Return a long stream of small requests: what its first requests left, and held-out sums."""
    lines = []
    for row in sorted(read_cells("long-stream"), key=lambda row: float(row["memory_fall"])):
        first = _FIRST_OF_LONG * row["request_size"]
        for point in row["checkpoints"][1:]:
            losses, heldout = point["losses"][:first], point["heldout"]
            lines.append(
                (
                    *(row["memory_fall"], point["request"], f"{fmean(losses):.2f}"),
                    f"{fmean(map(log_odds, losses)):+.2f}",
                    f"{fmean(point['losses']):.2f}",
                    f"{fmean(heldout):.3f}",
                    f"{100 * fmean(loss < math.log(2) for loss in heldout):.0f} %",
                )
            )
    head = (
        "memory_fall, requests, first ten nats, log-odds, all nats, held-out nats, "
        "held-out likelier than not"
    )
    return table(head, lines)


def variants() -> Iterator[tuple[str, str, list[Row]]]:
    """Yield streams and variants with their cells, of the seeds that all have."""
    lowered = read_cells("drift")
    held = {stream: of(read_cells("witness"), "h0", stream) for stream in STREAMS}
    held["openbookqa"] = of(read_cells("wrong-answers"), "median", "openbookqa")
    for stream in STREAMS:
        own = of(lowered, _LOWERED, stream)
        seeds = [row["seed"] for row in own]
        yield stream, "d", [row for row in held[stream] if row["seed"] in seeds]
        yield stream, _LOWERED, own


def first_losses(point: Row) -> list[float]:
    """Return the losses of the first requests' answers at a checkpoint."""
    return [loss for losses in point["losses"][:_FIRST] for loss in losses]


def drift(row: Row) -> float:
    """Return by how many log-odds the first requests' answers rise with each later request."""
    first, last = row["checkpoints"][1], row["checkpoints"][-1]
    before, after = (fmean(map(log_odds, first_losses(point))) for point in (first, last))
    return (after - before) / (last["request"] - first["request"])


def log_odds(loss: float) -> float:
    """Return the log-odds of an answer with this loss."""
    return -math.log(math.expm1(max(loss, _STORED)))


if __name__ == "__main__":
    print(streams_table(), back_table(), long_table(), halves_table(), sep="\n\n")
