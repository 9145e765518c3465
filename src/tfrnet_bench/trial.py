"""One trial: a method with some settings on the first requests of a stream."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from tfrnet.core.settings import Settings
from tfrnet.data.items import Item
from tfrnet.data.protocol import Split
from tfrnet.data.tasks import find_task
from tfrnet.evaluation.evaluator import Evaluator
from tfrnet.evaluation.metrics.continual import trade_off
from tfrnet.evaluation.tasks import evaluate_task
from tfrnet.method import find_method
from tfrnet.models.load import LoadedModel
from tfrnet_bench.constants import UNTOUCHED
from tfrnet_bench.grid import search_space


@dataclass(frozen=True)
class Trial:
    """A method on one stream, with the settings that differ from the start of its search space."""

    method: str
    point: int
    settings: Mapping[str, Any]
    stream: str
    seed: int
    requests: int

    @property
    def key(self) -> str:
        """A name that no other trial has."""
        return f"{self.method}/{self.point}/{self.stream}/{self.seed}"


def run_trial(loaded: LoadedModel, trial: Trial, split: Split, batch_size: int) -> dict[str, Any]:
    """Apply the requests in memory, measure, and restore the model."""
    forgotten = split.forget[: trial.requests * split.request_size]
    start = time.perf_counter()
    outcomes: list[dict[str, Any]] = []
    if trial.method == UNTOUCHED:
        figures = _measure(loaded, forgotten, split, batch_size)
    else:
        method = find_method(trial.method)
        unlearner = method(
            loaded.model,
            loaded.tokenizer,
            split.retain_examples(),
            _settings(trial),
            guard=split.guard_examples(),
            seed=trial.seed,
        )
        try:
            for request in split.requests()[: trial.requests]:
                outcome = unlearner.forget(request).to_dict()
                outcomes.append({name: outcome[name] for name in _KEPT})
            trained = time.perf_counter() - start
            figures = _measure(loaded, forgotten, split, batch_size)
        finally:
            unlearner.detach()
        figures["unlearning_seconds"] = round(trained, 2)
    return {
        "key": trial.key,
        "method": trial.method,
        "point": trial.point,
        "settings": dict(trial.settings),
        "stream": trial.stream,
        "seed": trial.seed,
        "requests": trial.requests,
        **figures,
        "seconds": round(time.perf_counter() - start, 2),
        "outcomes": outcomes,
    }


def _settings(trial: Trial) -> Settings:
    given = {**search_space(trial.method).start, **trial.settings}
    settings = find_method(trial.method).config_class.from_dict(given)
    if vars(settings)["use_guard"]:
        return settings
    # A guard that decides nothing needs only a few examples.
    return settings.with_overrides(["guard_examples=8"])


_KEPT = (
    "outcome",
    "reason",
    "forget_loss_before",
    "forget_loss_after",
    "guard_loss_before",
    "guard_loss_after",
    "seconds",
    "details",
)


def _measure(
    loaded: LoadedModel, forgotten: Sequence[Item], split: Split, batch_size: int
) -> dict[str, Any]:
    evaluator = Evaluator(loaded, batch_size)
    forget = evaluate_task(evaluator, find_task(split.forget_task), forgotten, "forget").accuracy
    heldout = {
        name: evaluate_task(evaluator, find_task(name), items, "heldout").accuracy
        for name, items in split.heldout.items()
    }
    return {
        "forget_accuracy": forget,
        "heldout_accuracy": heldout,
        "trade_off": trade_off(forget, fmean(heldout.values())),
    }
