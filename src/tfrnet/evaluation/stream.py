"""What a stream did, request by request: every forgotten item after every request.

The states in between are the generations that a state folder keeps, so nothing is run again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tfrnet.data.protocol import Split
from tfrnet.data.tasks import find_task
from tfrnet.errors import InputError, StateError
from tfrnet.evaluation.evaluator import Evaluator
from tfrnet.evaluation.metrics import reemergence
from tfrnet.evaluation.metrics.structure import (
    composition,
    mask_changes,
    mask_figures,
    random_overlap,
)
from tfrnet.evaluation.tasks import evaluate_task
from tfrnet.state.store import StateStore
from tfrnet.tfr.memory import ChannelState
from tfrnet.unlearner import Effect

Entry = Mapping[str, Any]
_PERMUTATIONS = 2000


@dataclass(frozen=True)
class _Items:
    """Right or wrong, and the loss, of every item: [T + 1, items], the first row before all."""

    correct: NDArray[np.bool_]
    losses: NDArray[np.float64]


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
            if isinstance(state, ChannelState):
                masks.append(state.mask)
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
    items = _Items(
        np.array([rows[g][0] for g in generations]), np.array([rows[g][1] for g in generations])
    )
    return {
        "task": "stream",
        "forget_task": split.forget_task,
        "requests": [entry["id"] for entry in entries],
        "accepted": [entry["outcome"] == "accepted" for entry in entries],
        "n": len(split.forget),
        "forgetting": _forgetting(items, split, len(entries)),
    } | _structure(masks, entries, store)


def stream_entries(store: StateStore, split: Split) -> list[Entry]:
    """Return the ledger's requests, which must be those of the split, in order and not undone.

    The states after them must all be kept.
    """
    if any(entry["kind"] == "rollback" for entry in store.entries):
        raise InputError(
            f"state {store.layout.folder} was rolled back: its stream has no one order"
        )
    entries = [entry for entry in store.entries if entry["kind"] == "request"]
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


def _forgetting(items: _Items, split: Split, requests: int) -> dict[str, Any]:
    fixed = {item.digest for item in split.forget_eval}
    is_fixed = [item.digest in fixed for item in split.forget]
    # Items of requests that did not come yet have no place in the matrix.
    count = requests * split.request_size
    owners = np.repeat(np.arange(1, requests + 1), split.request_size)
    correct, losses = items.correct[:, :count], items.losses[:, :count]
    before, matrix = reemergence.request_matrix(100.0 * correct, owners)
    flips = reemergence.flip_back(correct, owners)
    return {
        "fixed": _list(100.0 * items.correct[:, is_fixed].mean(axis=1)),
        "seen": _list(reemergence.seen_items(100.0 * correct, owners)),
        "unseen": _list(reemergence.unseen_items(100.0 * correct, owners)),
        "accuracy": {"before": _list(before), "matrix": _list(matrix)},
        "loss": dict(
            zip(
                ("before", "matrix"),
                map(_list, reemergence.request_matrix(losses, owners)),
                strict=True,
            )
        ),
        "immediate": _list(reemergence.immediate(before, matrix)),
        "reemergence_end": _list(reemergence.end_reemergence(matrix)),
        "reemergence_peak": _list(reemergence.peak_reemergence(matrix)),
        "backward_transfer": reemergence.backward_transfer(matrix),
        "backward_transfer_over_all": reemergence.backward_transfer_over_all(matrix),
        "relative_recovery": reemergence.relative_recovery(before, matrix),
        "spill": _list(reemergence.spill(before, matrix)),
        "flip_back": asdict(flips) | {"share": flips.share, "interval": flips.interval},
        "permutation_test": asdict(
            reemergence.permutation_test(correct, owners, seed=0, permutations=_PERMUTATIONS)
        ),
    }


def _structure(
    masks: Sequence[torch.Tensor], entries: Sequence[Entry], store: StateStore
) -> dict[str, Any]:
    """Return what became of the mask, under `structure`; methods without a mask have none."""
    if not masks:
        return {}
    threshold = store.manifest.tfr_config().dormant_threshold
    figures = [mask_figures(values, threshold) for values in masks]
    changes = mask_changes(masks, threshold)
    rankings = [entry["top_channels"] for entry in entries]
    size = min(map(len, rankings))
    shares = composition(rankings, size)
    structure = {
        "channels": figures[0].total,
        "capacity": [figure.capacity for figure in figures],
        "capacity_loss": [figure.capacity_loss for figure in figures],
        "dormant": [figure.dormant for figure in figures],
        "suppressed_now": [figure.suppressed_now for figure in figures],
        "suppressed_ever": [change.suppressed_ever for change in changes],
        "recovered": [change.recovered for change in changes],
        "net_dormant": [change.net_dormant for change in changes],
        "composition_size": size,
        "composition": [asdict(share) for share in shares],
        "random_overlap": random_overlap(size, figures[0].total),
    }
    return {"structure": structure}


def _list(values: NDArray[np.float64]) -> list[Any]:
    listed: list[Any] = values.tolist()
    return listed
