"""What the page shows of one cell, as small JSON values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfrnet_bench.report.bench_run import Cell
from tfrnet_bench.report.compact import clipped, rounded
from tfrnet_bench.report.provenance import DIGEST_LENGTH

_SHOWN_ANSWERS = 8
_TEXT_LENGTH = 320
_REQUEST_FIELDS = (
    *("id", "outcome", "reason", "forget_loss_before", "forget_loss_after"),
    *("guard_loss_before", "guard_loss_after", "selected", "recovered", "suppressed_now"),
    *("dormant", "capacity", "attempts"),
)
_STRUCTURE_FIELDS = ("capacity", "dormant", "suppressed_now", "composition", "random_overlap")


def cell_data(cell: Cell) -> dict[str, Any]:
    """Return what the charts, the timeline and the texts of a cell need."""
    result = cell.result
    structure = result.get("structure") or {}
    accuracy = (result.get("forgetting") or {}).get("accuracy") or {}
    texts = [*cell.samples, *_without_samples(result.get("answers") or [], cell.samples)]
    values = {
        "kind": cell.kind,
        "stream": cell.stream,
        "variant": cell.variant,
        "seed": str(cell.seed),
        "about": _about(cell),
        "requests": request_data(cell.requests),
        "checkpoints": [
            {name: point.get(name) for name in ("request", "forget", "retain")}
            for point in result.get("checkpoints") or ()
        ],
        "before": accuracy.get("before"),
        "matrix": accuracy.get("matrix"),
        "structure": {name: structure[name] for name in _STRUCTURE_FIELDS if name in structure},
        "channel_map": result.get("channel_map"),
        "texts": [_text(entry) for entry in texts[:_SHOWN_ANSWERS]],
        "texts_in_all": len(texts),
    }
    compact: dict[str, Any] = rounded({name: value for name, value in values.items() if value})
    return compact


def request_data(requests: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """Return the requests column by column, which takes half the space of row by row."""
    if not requests:
        return {}
    columns = {name: [request.get(name) for request in requests] for name in _REQUEST_FIELDS}
    columns["seconds"] = [request.get("seconds", {}).get("total") for request in requests]
    columns["peak"] = [request.get("memory", {}).get("peak") for request in requests]
    return columns


def _about(cell: Cell) -> list[list[str]]:
    """Return the facts that stand above the charts."""
    result = cell.result
    origin, seconds = result.get("provenance") or {}, result.get("seconds") or {}
    facts = {
        "method": f"{cell.method} ({result.get('preset', 'no')} preset)",
        "overrides": ", ".join(result.get("overrides") or ()),
        "model": (result.get("model") or {}).get("name"),
        "device": " ".join(str(origin[name]) for name in ("device", "dtype") if name in origin),
        "commit": origin.get("commit"),
        "started": origin.get("started"),
        "inputs digest": str(result.get("inputs", ""))[:DIGEST_LENGTH],
        "seconds": ", ".join(f"{name} {value:.1f}" for name, value in seconds.items()),
        "peak memory": f"{result['peak_bytes'] / 1e9:.2f} GB" if result.get("peak_bytes") else "",
        "scores": ", ".join(
            f"{name.replace('_', ' ')} {value:.1f}"
            for name, value in (result.get("scores") or {}).items()
            if isinstance(value, int | float)
        ),
    }
    return [[name, str(value)] for name, value in facts.items() if value]


def _without_samples(
    answers: Sequence[dict[str, Any]], samples: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    known = {sample.get("key") for sample in samples}
    return [answer for answer in answers if answer.get("key") not in known]


def _text(entry: dict[str, Any]) -> dict[str, str]:
    names = ("key", "prompt", "gold", "before", "after")
    return {name: clipped(entry[name], _TEXT_LENGTH) for name in names if name in entry}
