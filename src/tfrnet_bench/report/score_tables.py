"""Tables of the main scores and of the ablations."""

from __future__ import annotations

from collections.abc import Sequence

from tfrnet_bench.report.bench_run import NO_OP, Cell
from tfrnet_bench.report.scores import NAMES, StreamScores
from tfrnet_bench.report.table import MEANING, MISSING, Row, Table, Value, mean, number, text

HINTS = {
    "F Avg": "Accuracy on forgotten items in %, averaged over the checkpoints; lower is better.",
    "R Avg": "Accuracy on held-out items of all tasks in %, averaged; higher is better.",
    "Trade-off": "Harmonic mean of 100 - F Avg and R Avg; higher is better.",
    "Mean": "Mean Trade-off over all streams, from seeds that have them all.",
    "Δ Trade-off": "Difference to the method itself on the same seeds.",
    "Re-emergence": "Mean rise of accuracy on forgotten items from right after their request to "
    "the stream's end, in points; lower is better.",
    "Capacity": "Channels above the dormant threshold at the end of the stream, in %.",
}


def trade_off_table(scores: StreamScores) -> Table:
    """Return the Trade-off of every method on every stream, and the mean."""
    rows = []
    for variant in scores.main:
        values = [
            mean(list(scores.by_seed(variant, stream, "trade_off").values()))
            for stream in scores.streams
        ]
        overall = mean(scores.means_over_streams(variant, "trade_off"))
        rows.append(Row([_named(variant), overall, *values], _style(variant)))
    return Table(
        "Trade-off by stream",
        ["Method", "Mean", *scores.streams],
        rows,
        HINTS,
        order="Mean",
        note=f"Means over seeds. {MEANING}",
    )


def stream_table(scores: StreamScores, stream: str) -> Table:
    """Return the main scores on one stream, with what a model without knowledge reaches."""
    final = f"F@{scores.last_checkpoint(stream)}"
    rows = [
        Row([_named(variant), *_means(scores, variant, stream), seeds], _style(variant))
        for variant in scores.main
        if (seeds := _seeds(scores, variant, stream)) is not MISSING
    ]
    floors = next((c.result.get("floors") for c in scores.cells if c.stream == stream), None) or {}
    rows += [
        Row(
            [text(f"floor: {name}"), number(value), number(value), MISSING, MISSING, MISSING],
            "floor",
            is_fixed=True,
        )
        for name, value in floors.get(stream, {}).items()
    ]
    return Table(
        f"Stream {stream}",
        ["Method", "F Avg", final, "R Avg", "Trade-off", "Seeds"],
        rows,
        HINTS | {final: "Accuracy on forgotten items in % after the last request."},
        order="Trade-off",
    )


def ablation_table(scores: StreamScores, stream: str) -> Table | None:
    """Return the variants of each method beside the method itself; None if there are none."""
    rows = []
    variants = [name for name in scores.ablations if scores.of(name, stream)]
    bases = {scores.method_of(variant) for variant in variants}
    for variant in sorted({*bases, *variants}):
        cells = scores.of(variant, stream)
        if not cells:
            continue
        rows.append(
            Row(
                [
                    text(variant),
                    *_means(scores, variant, stream),
                    MISSING if variant in bases else _difference(scores, variant, stream),
                    mean(_re_emergences(cells), 2),
                    mean(_capacities(cells), 2),
                ],
                "base" if variant in bases else "",
            )
        )
    if not variants:
        return None
    final = f"F@{scores.last_checkpoint(stream)}"
    return Table(
        f"Variants on stream {stream}",
        [
            *("Variant", "F Avg", final, "R Avg", "Trade-off", "Δ Trade-off"),
            *("Re-emergence", "Capacity"),
        ],
        rows,
        HINTS,
        order="Trade-off",
    )


def _named(variant: str) -> Value:
    return Value(variant, note="untouched model") if variant == NO_OP else text(variant)


def _style(variant: str) -> str:
    return "no-op" if variant == NO_OP else ""


def _means(scores: StreamScores, variant: str, stream: str) -> list[Value]:
    return [mean(list(scores.by_seed(variant, stream, name).values())) for name in NAMES]


def _seeds(scores: StreamScores, variant: str, stream: str) -> Value:
    count = len(scores.by_seed(variant, stream, "trade_off"))
    return number(count, 0) if count else MISSING


def _difference(scores: StreamScores, variant: str, stream: str) -> Value:
    base = scores.by_seed(scores.method_of(variant), stream, "trade_off")
    other = scores.by_seed(variant, stream, "trade_off")
    return mean([other[seed] - base[seed] for seed in sorted(base.keys() & other.keys())])


def _re_emergences(cells: Sequence[Cell]) -> list[float]:
    found = [cell.result.get("forgetting", {}).get("backward_transfer") for cell in cells]
    return [value for value in found if value is not None]


def _capacities(cells: Sequence[Cell]) -> list[float]:
    found = [cell.result.get("structure", {}).get("capacity") for cell in cells]
    return [100 * values[-1] for values in found if values]
