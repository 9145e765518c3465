"""What a stream did to items and channels, from measurements after every request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tfrnet.core.errors import InputError
from tfrnet.evaluation.metrics import reemergence
from tfrnet.evaluation.metrics.structure import (
    composition,
    mask_changes,
    mask_figures,
    random_overlap,
)

_PERMUTATIONS = 2000


@dataclass(frozen=True)
class ItemHistory:
    """Correctness and loss of every item: [T + 1, items], the first row before any request."""

    correct: NDArray[np.bool_]
    losses: NDArray[np.float64]


def forgetting_figures(
    items: ItemHistory, is_fixed: Sequence[bool], request_size: int
) -> dict[str, Any]:
    """Return what was forgotten when, as plain JSON values.

    `is_fixed` marks the items that the headline accuracy is always measured on.
    """
    requests = len(items.correct) - 1
    # Items of requests that have not been processed yet are not in the matrix.
    count = requests * request_size
    owners = np.repeat(np.arange(1, requests + 1), request_size)
    correct, losses = items.correct[:, :count], items.losses[:, :count]
    before, matrix = reemergence.request_matrix(100.0 * correct, owners)
    flips = reemergence.flip_back(correct, owners)
    return {
        "fixed": _list(100.0 * items.correct[:, list(is_fixed)].mean(axis=1)),
        "seen": _list(reemergence.seen_items(100.0 * correct, owners)),
        "unseen": _list(reemergence.unseen_items(100.0 * correct, owners)),
        "seen_loss": _list(reemergence.seen_items(losses, owners)),
        "unseen_loss": _list(reemergence.unseen_items(losses, owners)),
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


def structure_figures(
    masks: Sequence[torch.Tensor], rankings: Sequence[Sequence[int]], dormant_threshold: float
) -> dict[str, Any]:
    """Return how the mask changed, from the masks before the first and after every request.

    `rankings` are the channels of highest risk at each request, in descending order.
    """
    figures = [mask_figures(values, dormant_threshold) for values in masks]
    changes = mask_changes(masks, dormant_threshold)
    size = min(map(len, rankings))
    if not size:
        raise InputError(
            "a request's record names no top_channels, which a method with a mask has to give"
        )
    shares = composition(rankings, size)
    return {
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


def _list(values: NDArray[np.float64]) -> list[Any]:
    listed: list[Any] = values.tolist()
    return listed
