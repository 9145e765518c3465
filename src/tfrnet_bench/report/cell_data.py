"""What the page shows of one cell, as small JSON values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfrnet.audit.figures import Figures
from tfrnet.core.loss_words import group_words
from tfrnet.core.outcome import verdict
from tfrnet_bench.report.compact import clipped, rounded
from tfrnet_bench.report.origin_tables import DIGEST_LENGTH
from tfrnet_bench.results import CellResult, Part

_SHOWN_ANSWERS = 8
_TEXT_LENGTH = 320
_REQUEST_FIELDS = (
    *("id", "outcome", "reason", "forget_loss_before", "forget_loss_after"),
    *("guard_loss_before", "guard_loss_after", "selected", "recovered", "suppressed_now"),
    *("dormant", "capacity", "mask", "attempts"),
)
_STRUCTURE_FIELDS = ("capacity", "dormant", "suppressed_now", "composition", "random_overlap")


def cell_data(result: CellResult) -> dict[str, Any]:
    """Return what the charts, the timeline and the texts of a cell need."""
    structure = result.structure
    accuracy = result.forgetting.get("accuracy") or {}
    texts = [*result.samples, *_without_samples(result)]
    values = {
        "kind": result.kind,
        "stream": result.stream,
        "variant": result.variant,
        "seed": str(result.seed),
        "about": _about(result),
        "requests": request_data(result.requests),
        "checkpoints": [
            {name: point.get(name) for name in ("request", "forget", "retain")}
            for point in result.checkpoints
        ],
        "before": accuracy.get("before"),
        "matrix": accuracy.get("matrix"),
        "structure": {name: structure[name] for name in _STRUCTURE_FIELDS if name in structure},
        "channel_map": result.channel_map,
        "texts": [_text(entry) for entry in texts[:_SHOWN_ANSWERS]],
        "texts_in_all": len(texts),
    }
    compact: dict[str, Any] = rounded({name: value for name, value in values.items() if value})
    return compact


def request_data(requests: Sequence[Part]) -> dict[str, list[Any]]:
    """Return the requests column by column, which takes half the space of row by row."""
    if not requests:
        return {}
    columns = {name: [request.get(name) for request in requests] for name in _REQUEST_FIELDS}
    if any(request.get("guard_groups") for request in requests):
        columns["guard_groups"] = [
            group_words(request.get("guard_groups") or {}) for request in requests
        ]
    if any(request.get("holdout") for request in requests):
        for name in ("loss_before", "loss_after"):
            columns[f"holdout_{name}"] = [
                (request.get("holdout") or {}).get(name) for request in requests
            ]
    if any(request.get("audit") for request in requests):
        columns["wordings"] = [_wordings(request.get("audit")) for request in requests]
    columns["verdict"] = [verdict(request) for request in requests]
    columns["seconds"] = [request.get("seconds", {}).get("total") for request in requests]
    columns["peak"] = [request.get("memory", {}).get("peak") for request in requests]
    return columns


def _wordings(audit: Part | None) -> str:
    """Return in how many of the wordings that an audit tried the answer was given, and is."""
    return Figures.from_dict(audit).all_wordings.count if audit else ""


def _about(result: CellResult) -> list[list[str]]:
    """Return the facts that stand above the charts."""
    origin = result.provenance
    facts = {
        "method": f"{result.method} ({result.preset or 'no'} preset)",
        "overrides": ", ".join(result.overrides),
        "model": result.model.get("name"),
        "device": " ".join(str(origin[name]) for name in ("device", "dtype") if name in origin),
        "commit": origin.get("commit"),
        "started": origin.get("started"),
        "inputs digest": result.inputs[:DIGEST_LENGTH],
        "seconds": ", ".join(f"{name} {value:.1f}" for name, value in result.seconds.items()),
        "peak memory": f"{result.peak_bytes / 1e9:.2f} GB" if result.peak_bytes else "",
        "scores": ", ".join(
            f"{name.replace('_', ' ')} {value:.1f}"
            for name, value in result.scores.items()
            if isinstance(value, int | float)
        ),
    }
    return [[name, str(value)] for name, value in facts.items() if value]


def _without_samples(result: CellResult) -> list[Part]:
    """Return the answers that no sample shows in words."""
    known = {sample.get("key") for sample in result.samples}
    return [answer for answer in result.answers if answer.get("key") not in known]


def _text(entry: Part) -> dict[str, str]:
    names = ("key", "prompt", "gold", "before", "after")
    return {name: clipped(entry[name], _TEXT_LENGTH) for name in names if name in entry}
