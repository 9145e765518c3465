"""Applying a stream's requests with one method, from the start or from saved progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfrnet.core.outcome import Outcome
from tfrnet.data.examples import Example
from tfrnet.data.requests import Request
from tfrnet.method import find_method
from tfrnet.models.load import LoadedModel
from tfrnet.unlearner import Unlearner
from tfrnet_bench.run.cell import Cell
from tfrnet_bench.run.context import RunContext
from tfrnet_bench.run.progress import Progress, load_progress, save_progress
from tfrnet_bench.run.provenance import model_identity, provenance
from tfrnet_bench.run_folder import CELL_SCHEMA

# Seconds. Writing a state of all weights takes a second; a kill loses about this much at most.
_SAVE_EVERY = 60.0

Report = Callable[[str], None]
# Called after every request with its number, its outcome and the method.
After = Callable[[int, Outcome, Unlearner[Any]], None]


@dataclass(frozen=True)
class StreamData:
    """The data that a method is given."""

    requests: Sequence[Request]
    retain: Sequence[Example]
    guard: Sequence[Example]


@dataclass
class CellRun:
    """A cell that is running: its inputs, and its progress."""

    cell: Cell
    context: RunContext
    loaded: LoadedModel
    folder: Path
    inputs: str
    started: str
    report: Report
    progress: Progress
    state_file: Path | None = None

    @classmethod
    def begin(
        cls, cell: Cell, context: RunContext, folder: Path, started: str, report: Report
    ) -> CellRun:
        """Load what the cell needs, and any progress that an earlier attempt saved."""
        inputs = context.inputs(cell)
        loaded = context.model(context.plan.model_of(cell))
        kept = load_progress(folder, inputs)
        progress, state_file = kept if kept else (Progress(), None)
        return cls(cell, context, loaded, folder, inputs, started, report, progress, state_file)

    def apply_requests(self, data: StreamData, after: After) -> None:
        """Apply the remaining requests; afterwards the model is as it was before."""
        settings = self.context.plan.settings(self.cell.variant)
        if settings is None:
            return
        unlearner = find_method(self.cell.variant.method)(
            self.loaded.model,
            self.loaded.tokenizer,
            data.retain,
            settings,
            guard=data.guard,
            seed=self.cell.seed,
            batch_size=self.context.machine.batch_size,
        )
        try:
            if self.state_file:
                unlearner.load(self.state_file)
            self._apply_each(data.requests, unlearner, after)
        finally:
            unlearner.detach()

    def _apply_each(
        self, requests: Sequence[Request], unlearner: Unlearner[Any], after: After
    ) -> None:
        progress = self.progress
        saved = time.monotonic()
        for number, request in enumerate(requests, start=1):
            if number <= len(progress.requests):
                continue
            self.report(f"{self.cell.key}: request {number} of {len(requests)}")
            with progress.time("unlearning"):
                outcome = unlearner.forget(request)
            self._record(outcome, unlearner)
            after(number, outcome, unlearner)
            if number < len(requests) and time.monotonic() - saved > _SAVE_EVERY:
                with progress.time("saving"):
                    save_progress(self.folder, self.inputs, progress, unlearner)
                saved = time.monotonic()

    def _record(self, outcome: Outcome, unlearner: Unlearner[Any]) -> None:
        record = outcome.to_dict()
        self.progress.rankings.append(record.pop("top_channels"))
        self.progress.requests.append(record)
        if unlearner.config_class.has_mask:
            self.progress.masks.append(unlearner.snapshot().tensors()["mask"].cpu())

    def header(self) -> dict[str, Any]:
        """Return the part of a result that all kinds of cells have."""
        variant, plan = self.cell.variant, self.context.plan
        settings = plan.settings(variant)
        name = plan.model_of(self.cell)
        seconds = {stage: round(value, 3) for stage, value in self.progress.seconds.items()}
        peaks = [request["memory"]["peak"] for request in self.progress.requests]
        return {
            "schema": CELL_SCHEMA,
            "kind": self.cell.kind,
            "variant": variant.label,
            "method": variant.method,
            "preset": variant.preset,
            "overrides": list(variant.overrides),
            "stream": self.cell.stream,
            "seed": self.cell.seed,
            "settings": settings.to_dict() if settings else {},
            "inputs": self.inputs,
            "model": {"name": name, "digest": model_identity(name)},
            "provenance": provenance(self.loaded.model, plan.dtype, self.started),
            "seconds": {"total": round(sum(seconds.values()), 3)} | seconds,
            "peak_bytes": max(peaks, default=0),
            "requests": self.progress.requests,
        }
