"""What the charts that compare methods need: scores and accuracies by stream."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from tfrnet.evaluation.metrics.intervals import t_interval
from tfrnet_bench.report.compact import rounded
from tfrnet_bench.report.method_scores import MethodScores
from tfrnet_bench.results import CellResult

# In the place of a stream: the mean over those that are averaged.
ALL_STREAMS = "all streams"


def method_data(scores: MethodScores) -> dict[str, Any]:
    """Return points and lines for every stream, and which variants belong together."""
    bases = sorted({scores.method_of(variant) for variant in scores.ablations})
    groups = {"methods": scores.main}
    if scores.ablations:
        groups["variants"] = sorted({*bases, *scores.ablations})
    variants = [*scores.main, *scores.ablations]
    streams = [ALL_STREAMS, *scores.streams] if len(scores.averaged) > 1 else scores.streams
    data: dict[str, Any] = rounded(
        {
            "groups": groups,
            "variants": variants,
            "streams": streams,
            "points": {
                s: _by_variant(variants, lambda v, s=s: _point(scores, v, s)) for s in streams
            },
            "lines": {
                s: _by_variant(variants, lambda v, s=s: _line(scores, v, s)) for s in streams
            },
        }
    )
    return data


def _by_variant(variants: Sequence[str], make: Any) -> dict[str, Any]:
    return {variant: made for variant in variants if (made := make(variant))}


def _point(scores: MethodScores, variant: str, stream: str) -> dict[str, Any] | None:
    """Return the scores of a variant with their intervals over seeds."""
    values = {
        name: scores.means_over_streams(variant, name)
        if stream == ALL_STREAMS
        else list(scores.by_seed(variant, stream, name).values())
        for name in ("forget_average", "retain_average", "trade_off")
    }
    if not all(values.values()):
        return None
    return {name: t_interval(by_seed) for name, by_seed in values.items()} | {
        "seeds": len(values["trade_off"])
    }


def _line(scores: MethodScores, variant: str, stream: str) -> dict[str, Any] | None:
    """Return forget and mean retain accuracy at every checkpoint, averaged over seeds."""
    if stream != ALL_STREAMS:
        return _mean_line([_checkpoints(result) for result in scores.of(variant, stream)])
    by_stream = [_line(scores, variant, name) for name in scores.averaged]
    if any(line is None for line in by_stream):
        return None
    lines = [line for line in by_stream if line is not None]
    # Streams that were measured at different requests have no mean.
    if any(line["requests"] != lines[0]["requests"] for line in lines):
        return None
    return {"requests": lines[0]["requests"]} | {
        name: [fmean(column) for column in zip(*(line[name] for line in lines), strict=True)]
        for name in ("forget", "retain")
    }


def _checkpoints(result: CellResult) -> dict[int, tuple[float, float]]:
    return {
        point["request"]: (point["forget"], fmean(point["retain"].values()))
        for point in result.checkpoints
        if point.get("retain")
    }


def _mean_line(cells: Sequence[dict[int, tuple[float, float]]]) -> dict[str, Any] | None:
    by_request: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for cell in cells:
        for request, pair in cell.items():
            by_request[request].append(pair)
    if not by_request:
        return None
    requests = sorted(by_request)
    return {
        "requests": requests,
        "forget": [fmean(forget for forget, _ in by_request[t]) for t in requests],
        "retain": [fmean(retain for _, retain in by_request[t]) for t in requests],
    }
