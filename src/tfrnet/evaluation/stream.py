"""What a stream did, request by request: every forgotten item is measured after every request.

The states in between are the generations kept in a state folder, so no request is run again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch

from tfrnet.core.effect import Effect
from tfrnet.core.errors import InputError, StateError
from tfrnet.data.protocol import Split
from tfrnet.data.requests import Request
from tfrnet.data.tasks import find_task
from tfrnet.evaluation.bystanders import Bystanders, bystander_figures, look
from tfrnet.evaluation.evaluator import Evaluator
from tfrnet.evaluation.forgetting import ItemHistory, forgetting_figures, structure_figures
from tfrnet.evaluation.metrics.continual import quarters, score_stream
from tfrnet.evaluation.metrics.oracle import Answers
from tfrnet.evaluation.tasks import answers, evaluate_task
from tfrnet.evaluation.yardsticks import bystander_summary, honest_figures, oracle_figures
from tfrnet.method_state import dormant_threshold_of, has_mask
from tfrnet.state import digest_key
from tfrnet.state.digests import is_digest_of
from tfrnet.state.store import StateStore

Entry = Mapping[str, Any]
Report = Callable[[str], None]


@dataclass(frozen=True)
class StreamResult:
    """What a stream did, and the last answers to the items it has requested."""

    figures: Mapping[str, Any]
    last: Answers = field(repr=False)

    def to_dict(self, oracle: Answers | None = None) -> dict[str, Any]:
        """Return plain JSON values; with an oracle's answers to all items, also distances to it."""
        measured = dict(self.figures["yardsticks"])
        if oracle:
            measured |= oracle_figures(self.last, oracle.first(len(self.last.said)))
        return {**self.figures, "yardsticks": measured}


def forgotten_answers(evaluator: Evaluator, split: Split, max_length: int | None = None) -> Answers:
    """Return a model's answers to everything that a stream forgets."""
    task = find_task(split.forget_task)
    return answers(split.forget, evaluate_task(evaluator, task, split.forget, "forget", max_length))


def measure_stream(
    evaluator: Evaluator,
    effect: Effect,
    store: StateStore,
    split: Split,
    max_length: int | None = None,
    report: Report | None = None,
    bystanders: Bystanders | None = None,
) -> StreamResult:
    """Measure a state's stream: its forgetting, its structure and the honest measures.

    Held-out items are measured before the first request and after each quarter of them, and
    bystanders, where there are any, before the first and after the last.
    """
    entries = stream_entries(store, split)
    generations = [0, *(entry["generation"] for entry in entries)]
    walk = _Walk(evaluator, effect, store, split, max_length, report or (lambda text: None))
    with _restored(effect, store):
        items = [walk.forgotten(generation) for generation in generations]
        points = [
            {"request": t, "retain": walk.heldout(generations[t])}
            for t in (0, *quarters(len(entries)))
        ]
        beside = walk.bystanders(bystanders, generations[-1]) if bystanders else {}
    history = ItemHistory(
        np.array([row.correct for row in items]), np.array([row.losses for row in items])
    )
    forgetting = forgetting_figures(history, split.is_fixed(), split.request_size)
    for point in points:
        point["forget"] = forgetting["fixed"][point["request"]]
    masks = [store.load(g).tensors()["mask"] for g in generations] if has_mask(store) else []
    figures = {
        "task": "stream",
        "forget_task": split.forget_task,
        "requests": [entry["id"] for entry in entries],
        "accepted": [entry["outcome"] == "accepted" for entry in entries],
        "n": len(split.forget),
        "forgetting": forgetting,
        "checkpoints": points,
        "bystanders": beside,
        "yardsticks": _yardsticks(split, forgetting, points) | bystander_summary(beside),
    }
    asked = len(entries) * split.request_size
    return StreamResult(figures | _structure(masks, entries, store), items[-1].first(asked))


@dataclass
class _Walk:
    """Shows a state's generations to the model, and measures each of them once."""

    evaluator: Evaluator
    effect: Effect
    store: StateStore
    split: Split
    max_length: int | None
    report: Report
    _forgotten: dict[int, Answers] = field(default_factory=dict)
    _heldout: dict[int, dict[str, float]] = field(default_factory=dict)

    def forgotten(self, generation: int) -> Answers:
        """Return the answers to all items of the stream."""
        if generation not in self._forgotten:
            self._show(generation, "forgotten items")
            found = forgotten_answers(self.evaluator, self.split, self.max_length)
            self._forgotten[generation] = found
        return self._forgotten[generation]

    def heldout(self, generation: int) -> dict[str, float]:
        """Return the accuracy on held-out items by task."""
        if generation not in self._heldout:
            self._show(generation, "held-out items")
            self._heldout[generation] = {
                task: evaluate_task(
                    self.evaluator, find_task(task), items, "heldout", self.max_length
                ).accuracy
                for task, items in self.split.heldout.items()
            }
        return self._heldout[generation]

    def bystanders(self, bystanders: Bystanders, last: int) -> dict[str, Any]:
        """Return the side effects; the untouched model reads what was said."""
        self._show(last, "side effects")
        now = look(self.evaluator, bystanders)
        self._show(0, "side effects")
        before = look(self.evaluator, bystanders)
        return bystander_figures(self.evaluator, bystanders, before, now)

    def _show(self, generation: int, what: str) -> None:
        self.report(f"stream, {what}, generation {generation}")
        self.effect.show(self.store.load(generation))


@contextmanager
def _restored(effect: Effect, store: StateStore) -> Iterator[None]:
    try:
        yield
    finally:
        effect.show(store.load())


def _yardsticks(
    split: Split, forgetting: Mapping[str, Any], points: Sequence[Mapping[str, Any]]
) -> dict[str, float | None]:
    chance = find_task(split.forget_task).floors(split.forget_eval)["random"]
    paper = score_stream(
        {point["request"]: point["forget"] for point in points},
        {point["request"]: list(point["retain"].values()) for point in points},
        [point["request"] for point in points[1:]],
    )
    scores = asdict(paper) | {"trade_off": paper.trade_off}
    return scores | honest_figures(forgetting, points, chance)


def stream_entries(store: StateStore, split: Split) -> list[Entry]:
    """Return the ledger's requests; raise unless they are the split's, in order and not undone.

    The state after each of them must still be kept.
    """
    ledger = store.entries
    if any(entry["kind"] in ("rollback", "repair") for entry in ledger):
        raise InputError(
            f"state {store.layout.folder} was rolled back or repaired: its requests have no single "
            "order; measure a state that was run straight through"
        )
    entries = [entry for entry in ledger if entry["kind"] == "request"]
    requests = split.requests()[: len(entries)]
    if not entries or [entry["id"] for entry in entries] != [request.id for request in requests]:
        raise InputError(
            f"state {store.layout.folder} does not hold the split's requests in their order; run "
            "the split's own requests.jsonl on a new state"
        )
    _refuse_other_examples(store, entries, requests)
    kept = store.layout.numbers()
    if lost := sorted({entry["generation"] for entry in entries} - set(kept)):
        raise StateError(
            f"generation {lost[0]} is no longer kept in {store.layout.folder}, and a stream is "
            f"measured after every request; run it with --keep {len(entries)} or more"
        )
    return list(entries)


def _refuse_other_examples(
    store: StateStore, entries: Sequence[Entry], requests: Sequence[Request]
) -> None:
    """Raise if a request was run with other examples than the split has: splits share their ids.

    Without the state's key, which its owner may keep elsewhere, only their number is compared.
    """
    key = store.key() if digest_key.place(store.layout).is_file() else None
    for entry, request in zip(entries, requests, strict=True):
        ran, wanted = entry["examples"], len(request.examples)
        if ran == wanted and (key is None or is_digest_of(entry["request_digest"], request, key)):
            continue
        had = "other examples" if ran == wanted else f"{ran} examples, not the split's {wanted}"
        raise InputError(
            f"state {store.layout.folder} is of another split: its request {request.id} was run "
            f"with {had}; give the split that it was run with, or run this one's requests.jsonl "
            "on a new state"
        )


def _structure(
    masks: Sequence[torch.Tensor], entries: Sequence[Entry], store: StateStore
) -> dict[str, Any]:
    """Return how the mask changed, under `structure`; empty for methods without a mask."""
    if not masks:
        return {}
    rankings = [entry["top_channels"] for entry in entries]
    threshold = dormant_threshold_of(store)
    return {"structure": structure_figures(masks, rankings, threshold)}
