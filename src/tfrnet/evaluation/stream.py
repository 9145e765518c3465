"""What a stream did, request by request: every forgotten item is measured after every request.

The states in between are the generations kept in a state folder, so no request is run again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from tfrnet.core.effect import Effect
from tfrnet.core.errors import InputError, StateError
from tfrnet.data.protocol import Split
from tfrnet.data.tasks import find_task
from tfrnet.evaluation.evaluator import Evaluator
from tfrnet.evaluation.forgetting import ItemHistory, forgetting_figures, structure_figures
from tfrnet.evaluation.tasks import evaluate_task
from tfrnet.method_state import dormant_threshold_of, has_mask
from tfrnet.state.store import StateStore

Entry = Mapping[str, Any]


def measure_stream(
    evaluator: Evaluator,
    effect: Effect,
    store: StateStore,
    split: Split,
    max_length: int = 256,
    report: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Return the forgetting and the structure of a state's stream, as plain JSON values."""
    entries = stream_entries(store, split)
    masks: list[torch.Tensor] = []
    rows: dict[int, tuple[list[bool], list[float]]] = {}
    task = find_task(split.forget_task)
    generations = [0, *(entry["generation"] for entry in entries)]
    try:
        for t, generation in enumerate(generations):
            state = store.load(generation)
            if has_mask(store):
                masks.append(state.tensors()["mask"])
            if generation not in rows:
                if report:
                    report(f"stream, after request {t}")
                effect.show(state)
                found = evaluate_task(evaluator, task, split.forget, "forget", max_length)
                rows[generation] = (
                    [bool(sample["correct"]) for sample in found.samples],
                    [float(sample["loss"]) for sample in found.samples],
                )
    finally:
        effect.show(store.load())
    items = ItemHistory(
        np.array([rows[g][0] for g in generations]), np.array([rows[g][1] for g in generations])
    )
    return {
        "task": "stream",
        "forget_task": split.forget_task,
        "requests": [entry["id"] for entry in entries],
        "accepted": [entry["outcome"] == "accepted" for entry in entries],
        "n": len(split.forget),
        "forgetting": forgetting_figures(items, split.is_fixed(), split.request_size),
    } | _structure(masks, entries, store)


def stream_entries(store: StateStore, split: Split) -> list[Entry]:
    """Return the ledger's requests; raise unless they are the split's, in order and not undone.

    The state after each of them must still be kept.
    """
    ledger = store.entries
    if any(entry["kind"] in ("rollback", "repair") for entry in ledger):
        raise InputError(
            f"state {store.layout.folder} was rolled back or repaired: its stream has no one order"
        )
    entries = [entry for entry in ledger if entry["kind"] == "request"]
    wanted = [request.id for request in split.requests()]
    found = [entry["id"] for entry in entries]
    if not entries or found != wanted[: len(found)]:
        raise InputError(
            f"state {store.layout.folder} does not hold the split's requests in their order; run "
            "the split's own requests.jsonl on a new state"
        )
    kept = store.layout.numbers()
    if lost := sorted({entry["generation"] for entry in entries} - set(kept)):
        raise StateError(
            f"generation {lost[0]} is no longer kept in {store.layout.folder}, and a stream is "
            f"measured after every request; run it with --keep {len(entries)} or more"
        )
    return list(entries)


def _structure(
    masks: Sequence[torch.Tensor], entries: Sequence[Entry], store: StateStore
) -> dict[str, Any]:
    """Return how the mask changed, under `structure`; empty for methods without a mask."""
    if not masks:
        return {}
    rankings = [entry["top_channels"] for entry in entries]
    threshold = dormant_threshold_of(store)
    return {"structure": structure_figures(masks, rankings, threshold)}
