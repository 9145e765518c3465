"""Whether forgotten items come back during later requests."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

from tfrnet.evaluation.metrics.reemergence import FlipBack
from tfrnet_bench.constants import STREAM
from tfrnet_bench.results import CellResult, Run
from tfrnet_bench.seeds import UNDEFINED
from tfrnet_bench.tables.labels import in_order, task_label, variant_label
from tfrnet_bench.tables.table import Table

# The first requests, which later ones had the most chances to undo.
_EARLY = 5


def reemergence_tables(run: Run) -> list[Table]:
    """Return a table for each stream."""
    return [_stream_table(run, stream) for stream in run.streams(STREAM)]


def _stream_table(run: Run, stream: str) -> Table:
    last = run.checkpoints()[-1]
    early = f"Requests 1-{min(_EARLY, last)}"
    rows = []
    for variant in in_order(run.variants(STREAM, stream)):
        readers = (_backward_transfer, _early_rise("end"), _early_rise("peak"))
        transfer, end, peak = (run.seeds(STREAM, stream, variant, read).text(2) for read in readers)
        count = len(run.by_seed(STREAM, stream, variant))
        flips = _flip_back(run, stream, variant)
        rows.append([variant_label(variant), transfer, flips, end, peak, str(count)])
    return Table(
        f"reemergence-{stream}",
        f"What comes back under later requests, forgetting {task_label(stream)}",
        [
            "Method",
            "Backward transfer",
            "Flip-back %",
            f"{early}: rise at {last}",
            f"{early}: peak rise",
            "n",
        ],
        rows,
        "Points of accuracy on a request's own items since that request, mean over n seeds ± half "
        "of Student's 95 % interval; above 0, forgotten items came back. Flip-back: of the items "
        "that were wrong after their own request, those that are right at the end, pooled over "
        "seeds, with Wilson's 95 % interval.",
    )


def _backward_transfer(result: CellResult) -> float | None:
    value = result.forgetting["backward_transfer"]
    return None if value is None else float(value)


def _early_rise(name: str) -> Callable[[CellResult], float]:
    return lambda result: fmean(result.forgetting[f"reemergence_{name}"][:_EARLY])


def _flip_back(run: Run, stream: str, variant: str) -> str:
    flips = [r.forgetting["flip_back"] for r in run.by_seed(STREAM, stream, variant).values()]
    seeds = run.seeds(STREAM, stream, variant, lambda result: 0.0)
    if not flips:
        return seeds.absence()
    pooled = FlipBack(sum(f["flipped"] for f in flips), sum(f["wrong"] for f in flips))
    if pooled.share is None or pooled.interval is None:
        return UNDEFINED
    low, high = pooled.interval
    return (
        f"{100 * pooled.share:.1f} ({100 * low:.1f} to {100 * high:.1f}), "
        f"{pooled.flipped} of {pooled.wrong}{seeds.remark()}"
    )
