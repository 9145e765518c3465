"""A cell of the continual protocol: apply every request, and measure after each."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from tfrnet.core.outcome import Outcome
from tfrnet.data.items import Item
from tfrnet.data.protocol import Split
from tfrnet.data.tasks import find_task
from tfrnet.evaluation.bystanders import Look, bystander_figures, look
from tfrnet.evaluation.forgetting import ItemHistory, forgetting_figures, structure_figures
from tfrnet.evaluation.metrics.continual import StreamScores, score_stream
from tfrnet.evaluation.tasks import TaskResult, said
from tfrnet.masking.channel_map import channel_map
from tfrnet.unlearner import Unlearner
from tfrnet_bench.run.cell_run import CellRun, StreamData

# How many forgotten items are shown with what the model said of them before and after.
_SHOWN = 16


def run_stream_cell(run: CellRun) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the result, and some questions and answers in words."""
    return _StreamCell(run).measure()


class _StreamCell:
    def __init__(self, run: CellRun) -> None:
        self.run, self.progress = run, run.progress
        self.plan, self.context = run.context.plan, run.context
        self.split: Split = run.context.split(run.cell.stream, run.cell.seed)
        self.layout: list[list[Any]] = []
        self.bystanders = run.context.bystanders(run.cell.stream, run.cell.seed)
        with self.progress.time("evaluation"):
            self.before = self._measure_before()
            self.first_look = self.last_look = self._look()
            self.published_sets = run.context.published_sets(run.cell.stream, run.cell.seed)
            self.published = {"before": self._published(untouched=True)}
        self.forgotten = self.before

    def measure(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        split = self.split
        data = StreamData(split.requests(), split.retain_examples(), split.guard_examples())
        if not self.run.cell.variant.acts:
            self._repeat_untouched(len(data.requests))
        self.run.apply_requests(data, self._after)
        return self._result(), self._samples()

    def _measure_before(self) -> TaskResult:
        """Measure the untouched model, once for all methods of a process."""
        split, loaded = self.split, self.run.loaded
        forget = self.context.measure_untouched(loaded, split.forget_task, split.forget)
        if not self.progress.correct:
            self._add(forget)
            heldout = {
                task: self.context.measure_untouched(loaded, task, items)
                for task, items in split.heldout.items()
            }
            self.progress.checkpoints.append(self._checkpoint(0, heldout))
        return forget

    def _after(self, number: int, outcome: Outcome, unlearner: Unlearner[Any]) -> None:
        self.layout = unlearner.layout()
        with self.progress.time("evaluation"):
            # A rejected request has changed nothing, but for the last all answers are wanted.
            if outcome.accepted or number == self.plan.sizes.requests:
                self.forgotten = self._measure(self.split.forget_task, self.split.forget)
                self._add(self.forgotten)
            else:
                self._repeat()
            if number in self.plan.checkpoints:
                heldout = {
                    task: self._measure(task, items) for task, items in self.split.heldout.items()
                }
                self.progress.checkpoints.append(self._checkpoint(number, heldout))
            if number == self.plan.sizes.requests:
                self.last_look = self._look()
                self.published["after"] = self._published()

    def _look(self) -> Look:
        return look(self.context.evaluator(self.run.loaded), self.bystanders)

    def _published(self, untouched: bool = False) -> dict[str, dict[str, float]]:
        """Return the dataset's own scores by set; nothing for a dataset without any."""
        measure = self.context.measure_untouched if untouched else self.context.measure
        return {
            part.name: measure(self.run.loaded, part.task, part.items).details["published"]
            for part in self.published_sets
        }

    def _repeat_untouched(self, requests: int) -> None:
        """Record the same figures after every request: the model is untouched."""
        first = self.progress.checkpoints[0]
        for number in range(1, requests + 1):
            self._repeat()
            if number in self.plan.checkpoints:
                self.progress.checkpoints.append(first | {"request": number})

    def _measure(self, task: str, items: Sequence[Item]) -> TaskResult:
        return self.context.measure(self.run.loaded, task, items)

    def _add(self, result: TaskResult) -> None:
        self.progress.correct.append([bool(sample["correct"]) for sample in result.samples])
        self.progress.losses.append([float(sample["loss"]) for sample in result.samples])

    def _repeat(self) -> None:
        self.progress.correct.append(self.progress.correct[-1])
        self.progress.losses.append(self.progress.losses[-1])

    def _checkpoint(self, number: int, heldout: Mapping[str, TaskResult]) -> dict[str, Any]:
        fixed = [
            right
            for right, counts in zip(self.progress.correct[-1], self.split.is_fixed(), strict=True)
            if counts
        ]
        return {
            "request": number,
            "forget": 100 * sum(fixed) / len(fixed),
            "retain": {task: result.accuracy for task, result in heldout.items()},
            "details": {task: _details(result) for task, result in heldout.items()},
        }

    def _result(self) -> dict[str, Any]:
        progress, plan = self.progress, self.plan
        history = ItemHistory(np.array(progress.correct), np.array(progress.losses))
        split = self.split
        floors = {task: find_task(task).floors(items) for task, items in split.heldout.items()}
        result = self.run.header() | {
            "protocol": asdict(plan.sizes)
            | {"request_size": split.request_size, "checkpoints": list(plan.checkpoints)},
            "checkpoints": progress.checkpoints,
            "scores": _scores(progress.checkpoints, plan.checkpoints),
            "untouched": _scores(progress.checkpoints, (0,)),
            "floors": floors | {"forget": find_task(split.forget_task).floors(split.forget_eval)},
            "forgetting": forgetting_figures(history, split.is_fixed(), split.request_size),
            "items": {
                "keys": [item.key for item in split.forget],
                "fixed": _bits(split.is_fixed()),
                "correct": [_bits(row) for row in progress.correct],
                "losses": {
                    "before": _rounded(progress.losses[0]),
                    "after": _rounded(progress.losses[-1]),
                },
                "said": self._said_digests(),
            },
            # The method is detached by now: the model that reads the texts is the untouched one.
            "bystanders": bystander_figures(
                self.context.evaluator(self.run.loaded),
                self.bystanders,
                self.first_look,
                self.last_look,
            ),
            "answers": []
            if not find_task(split.forget_task).quotable
            else [
                {"key": item.key, "gold": gold, "before": before, "after": after}
                for item, gold, before, after in self._answers(in_words=False)
            ],
        }
        if self.published_sets:
            result["published"] = {"after": self.published["before"]} | self.published
        if progress.masks:
            masks = [torch.ones_like(progress.masks[0]), *progress.masks]
            threshold = float(result["settings"]["dormant_threshold"])
            result |= {
                "structure": structure_figures(masks, progress.rankings, threshold),
                "channel_map": channel_map(self.layout, masks, threshold),
            }
        return result

    def _samples(self) -> list[dict[str, Any]]:
        return [
            {"key": item.key, "prompt": item.prompt, "gold": gold, "before": before, "after": after}
            for item, gold, before, after in self._answers(in_words=True)
        ]

    def _said_digests(self) -> list[str]:
        """Return digests of all last answers: enough to tell whether two models agree."""
        metric = self.before.metric
        pairs = zip(self.split.forget, self.forgotten.samples, strict=True)
        return [_digest(said(item, sample, metric, in_words=False)) for item, sample in pairs]

    def _answers(self, in_words: bool) -> list[tuple[Item, str, str, str]]:
        items = self.split.forget[:_SHOWN]
        metric = self.before.metric
        pairs = zip(self.before.samples, self.forgotten.samples, strict=True)
        return [
            (
                item,
                said(item, None, metric, in_words),
                said(item, first, metric, in_words),
                said(item, last, metric, in_words),
            )
            for item, (first, last) in zip(items, pairs, strict=False)
        ]


def _details(result: TaskResult) -> dict[str, Any]:
    figures = result.to_dict()
    kept = ("n", "metric", "truncated", "chosen", "balanced_accuracy")
    metrics = {name: measure.value for name, measure in result.metrics.items()}
    return {name: figures[name] for name in kept if name in figures} | {"metrics": metrics}


def _scores(checkpoints: Sequence[Mapping[str, Any]], at: Sequence[int]) -> dict[str, float]:
    scores: StreamScores = score_stream(
        {point["request"]: point["forget"] for point in checkpoints},
        {point["request"]: list(point["retain"].values()) for point in checkpoints},
        at,
    )
    return asdict(scores) | {"trade_off": scores.trade_off}


def _rounded(values: Sequence[float]) -> list[float]:
    return [float(f"{value:.6g}") for value in values]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _bits(values: Sequence[bool]) -> str:
    return "".join("01"[bool(value)] for value in values)
