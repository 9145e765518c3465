"""The page's tables of the main scores and of the ablations."""

from __future__ import annotations

from collections.abc import Sequence

from tfrnet_bench.constants import UNTOUCHED
from tfrnet_bench.report.method_scores import NAMES, MethodScores
from tfrnet_bench.report.values import MEANING, MISSING, mean, number
from tfrnet_bench.results import CellResult
from tfrnet_bench.tables.guessing import FORGET, floors_by_seed
from tfrnet_bench.tables.table import Entry, Table, Value

HINTS = {
    "F Avg": "Accuracy on forgotten items in %, averaged over the checkpoints; lower is better.",
    "R Avg": "Accuracy on held-out items of all tasks in %, averaged; higher is better.",
    "Trade-off": "Harmonic mean of 100 - F Avg and R Avg; higher is better.",
    "Mean": "Mean Trade-off over the paper's streams, or over all where there are none of these, "
    "from seeds that have them all.",
    "Δ Trade-off": "Difference to the method itself on the same seeds.",
    "Re-emergence": "Mean rise of accuracy on forgotten items from right after their request to "
    "the stream's end, in points; lower is better.",
    "Capacity": "Channels above the dormant threshold at the end of the stream, in %.",
}


_ROW_STYLES = {UNTOUCHED: "no-op"}


def trade_off_table(scores: MethodScores) -> Table:
    """Return the Trade-off of every method on every stream, and the mean."""
    rows = []
    for variant in scores.main:
        by_stream = [
            mean(scores.by_seed(variant, stream, "trade_off").values()) for stream in scores.streams
        ]
        overall = mean(scores.means_over_streams(variant, "trade_off"))
        rows.append([_named(variant), overall, *by_stream])
    return Table(
        "trade-off",
        "Trade-off by stream",
        ["Method", "Mean", *scores.streams],
        rows,
        note=f"Means over seeds. {MEANING}",
        hints=HINTS,
        row_styles=_ROW_STYLES,
        order="Mean",
    )


def stream_table(scores: MethodScores, stream: str) -> Table:
    """Return the main scores on one stream, with what a model without knowledge reaches."""
    final = f"F@{scores.last_checkpoint(stream)}"
    return Table(
        f"scores-{stream}",
        f"Stream {stream}",
        ["Method", "F Avg", final, "R Avg", "Trade-off", "Seeds"],
        [
            [_named(variant), *_means(scores, variant, stream), seeds]
            for variant in scores.main
            if (seeds := _seeds(scores, variant, stream)) is not MISSING
        ],
        footer=[
            [f"floor: {name}", value, value, MISSING, MISSING, MISSING]
            for name, value in _floors(scores, stream).items()
        ],
        hints=HINTS | {final: "Accuracy on forgotten items in % after the last request."},
        row_styles=_ROW_STYLES,
        order="Trade-off",
    )


def ablation_table(scores: MethodScores, stream: str) -> Table | None:
    """Return the variants of each method beside the method itself; None if there are none."""
    variants = [name for name in scores.ablations if scores.of(name, stream)]
    if not variants:
        return None
    bases = {scores.method_of(variant) for variant in variants}
    rows: list[list[Entry]] = []
    for variant in sorted({*bases, *variants}):
        results = scores.of(variant, stream)
        if not results:
            continue
        rows.append(
            [
                variant,
                *_means(scores, variant, stream),
                MISSING if variant in bases else _difference(scores, variant, stream),
                mean((result.forgetting.get("backward_transfer") for result in results), 2),
                mean(_capacities(results), 2),
            ]
        )
    final = f"F@{scores.last_checkpoint(stream)}"
    return Table(
        f"variants-{stream}",
        f"Variants on stream {stream}",
        [
            *("Variant", "F Avg", final, "R Avg", "Trade-off", "Δ Trade-off"),
            *("Re-emergence", "Capacity"),
        ],
        rows,
        hints=HINTS,
        row_styles=dict.fromkeys(bases, "base"),
        order="Trade-off",
    )


def _named(variant: str) -> Entry:
    return Value(variant, note="untouched model") if variant == UNTOUCHED else variant


def _means(scores: MethodScores, variant: str, stream: str) -> list[Value]:
    return [mean(scores.by_seed(variant, stream, name).values()) for name in NAMES]


def _floors(scores: MethodScores, stream: str) -> dict[str, Value]:
    """Return what ways to answer without knowledge score on the items to be forgotten."""
    by_seed = [
        found[FORGET] for found in floors_by_seed(scores.run, stream).values() if FORGET in found
    ]
    names = dict.fromkeys(name for found in by_seed for name in found)
    return {name: mean(found.get(name) for found in by_seed) for name in names}


def _seeds(scores: MethodScores, variant: str, stream: str) -> Value:
    count = len(scores.by_seed(variant, stream, "trade_off"))
    return number(count, 0) if count else MISSING


def _difference(scores: MethodScores, variant: str, stream: str) -> Value:
    base = scores.by_seed(scores.method_of(variant), stream, "trade_off")
    other = scores.by_seed(variant, stream, "trade_off")
    return mean([other[seed] - base[seed] for seed in sorted(base.keys() & other.keys())])


def _capacities(results: Sequence[CellResult]) -> list[float]:
    found = [result.structure.get("capacity") for result in results]
    return [100 * values[-1] for values in found if values]
