"""One trial on one stream: a method with some settings, measured at each quarter."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from tfrnet.core.settings import Settings
from tfrnet.data.protocol import Split
from tfrnet.data.tasks import find_task
from tfrnet.evaluation.evaluator import Evaluator
from tfrnet.evaluation.metrics.continual import score_stream
from tfrnet.evaluation.metrics.requested import honest_scores
from tfrnet.evaluation.tasks import evaluate_task
from tfrnet.method import find_method
from tfrnet.models.load import LoadedModel
from tfrnet_bench.machine import Machine
from tfrnet_bench.search.grid import settings_at

Figures = dict[str, Any]


class TooLateError(Exception):
    """The time ended before the stream did."""


@dataclass(frozen=True)
class Trial:
    """A method's point, by its number, on one stream with one seed."""

    method: str
    point: int
    settings: Mapping[str, Any]
    stream: str
    seed: int

    @property
    def key(self) -> str:
        """A name that no other trial has."""
        return f"{self.method}/{self.point}/{self.stream}/{self.seed}"


@dataclass(frozen=True)
class Stage:
    """What the trials of a process share."""

    loaded: LoadedModel
    machine: Machine
    checkpoints: Sequence[int]
    setup: Mapping[str, Any]
    deadline: float | None = None  # of time.time()

    def is_over(self) -> bool:
        """Whether the time has ended."""
        return self.deadline is not None and time.time() > self.deadline


def run_untouched(stage: Stage, trial: Trial, split: Split) -> Figures:
    """Measure the model before any request."""
    start = time.perf_counter()
    first = _measure(stage, split, 0)
    return _header(stage, trial, split) | {
        "trade_off": score_stream(*_by_request([first]), (0,)).trade_off,
        "honest_trade_off": 0.0,
        "checkpoints": [first],
        "seconds": round(time.perf_counter() - start, 2),
    }


def run_trial(stage: Stage, trial: Trial, split: Split, untouched: Mapping[str, Any]) -> Figures:
    """Apply the requests in memory, measure at the checkpoints, and restore the model.

    `untouched` is what `run_untouched` found on the same stream.
    """
    start = time.perf_counter()
    points = list(untouched["checkpoints"])
    outcomes: list[dict[str, Any]] = []
    unlearner = find_method(trial.method)(
        stage.loaded.model,
        stage.loaded.tokenizer,
        split.retain_examples(),
        _settings(trial),
        guard=split.guard_examples(),
        seed=trial.seed,
        batch_size=stage.machine.batch_size,
    )
    measuring = 0.0
    try:
        for number, request in enumerate(split.requests(), start=1):
            if stage.is_over():
                raise TooLateError(trial.key)
            outcome = unlearner.forget(request).to_dict()
            outcomes.append({name: outcome[name] for name in _KEPT})
            if number in stage.checkpoints:
                before = time.perf_counter()
                points.append(_measure(stage, split, number))
                measuring += time.perf_counter() - before
    finally:
        unlearner.detach()
    seconds = time.perf_counter() - start
    return (
        _header(stage, trial, split)
        | scores(points, find_task(trial.stream).floors(split.forget_eval)["random"])
        | {
            "checkpoints": points,
            "unlearning_seconds": round(seconds - measuring, 2),
            "seconds": round(seconds, 2),
            "outcomes": outcomes,
        }
    )


def scores(points: Sequence[Mapping[str, Any]], chance: float) -> Figures:
    """Return both Trade-offs of a stream, given what was measured before it and at each quarter."""
    first, *later = points
    found = honest_scores(
        first["seen"],
        [point["seen"] for point in later],
        chance,
        fmean(first["heldout"].values()),
        [fmean(point["heldout"].values()) for point in later],
    )
    paper = score_stream(*_by_request(later), [point["request"] for point in later])
    return {
        "honest_trade_off": found.trade_off if found else 0.0,
        "forgotten": found.forgotten if found else 0.0,
        "kept": found.kept if found else 0.0,
        "trade_off": paper.trade_off,
    }


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


def _header(stage: Stage, trial: Trial, split: Split) -> Figures:
    return {
        "key": trial.key,
        "method": trial.method,
        "point": trial.point,
        "settings": dict(trial.settings),
        "stream": trial.stream,
        "seed": trial.seed,
        "requests": len(split.requests()),
        "data": split.digest,
        **stage.setup,
    }


def _settings(trial: Trial) -> Settings:
    settings = settings_at(trial.method, trial.settings)
    if vars(settings)["use_guard"]:
        return settings
    # A guard that decides nothing needs only a few examples.
    return settings.with_overrides(["guard_examples=8"])


def _by_request(
    points: Sequence[Mapping[str, Any]],
) -> tuple[dict[int, float], dict[int, list[float]]]:
    return (
        {point["request"]: point["forget"] for point in points},
        {point["request"]: list(point["heldout"].values()) for point in points},
    )


def _measure(stage: Stage, split: Split, number: int) -> Figures:
    """Measure after a request: all items of the paper's score, and those requested so far.

    Before the first request all items count as requested.
    """
    evaluator = Evaluator(stage.loaded, stage.machine.eval_batch_size)
    items = split.forget
    result = evaluate_task(evaluator, find_task(split.forget_task), items, "forget")
    right = [bool(sample["correct"]) for sample in result.samples]
    fixed = [found for found, counts in zip(right, split.is_fixed(), strict=True) if counts]
    seen = right[: number * split.request_size] if number else right
    return {
        "request": number,
        "forget": 100 * fmean(fixed),
        "seen": 100 * fmean(seen),
        "heldout": {
            name: evaluate_task(evaluator, find_task(name), kept, "heldout").accuracy
            for name, kept in split.heldout.items()
        },
    }
