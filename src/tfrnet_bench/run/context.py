"""What the cells of one process share: the model, the streams and the untouched model's scores."""

from __future__ import annotations

import gc
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from typing import Any

from tfrnet.data.items import Item
from tfrnet.data.protocol import Split, make_split
from tfrnet.data.task import Task
from tfrnet.data.tasks import find_task
from tfrnet.evaluation.bystanders import Bystanders, find_bystanders
from tfrnet.evaluation.evaluator import Evaluator
from tfrnet.evaluation.published import PublishedSet, published_sets
from tfrnet.evaluation.tasks import TaskResult, evaluate_task
from tfrnet.models.fingerprint import fingerprint
from tfrnet.models.load import LoadedModel
from tfrnet_bench.machine import Machine
from tfrnet_bench.run.cell import Cell
from tfrnet_bench.run.plan import BenchPlan
from tfrnet_bench.run.provenance import model_identity
from tfrnet_bench.run.tofu_stream import TofuStream, make_tofu_stream

# Increase this when the same inputs would give other results than before.
_FORMAT = 1


class RunContext:
    """Loads models and data once, and checks that methods leave the model as they found it."""

    def __init__(self, plan: BenchPlan, machine: Machine) -> None:
        self.plan, self.machine = plan, machine
        self._splits: dict[tuple[str, int], Split] = {}
        self._bystanders: dict[tuple[str, int], Bystanders] = {}
        self._beside: dict[tuple[str, int], str] = {}
        self._before: dict[tuple[str, ...], TaskResult] = {}
        self._name = ""
        self._loaded: LoadedModel | None = None
        self._fingerprint = ""

    def model(self, name: str) -> LoadedModel:
        """Return a loaded model; only one is kept in memory at a time."""
        if self._loaded is None or self._name != name:
            self._loaded = None
            self._before.clear()
            gc.collect()
            self._loaded = self.machine.load(name, self.plan.dtype)
            self._name, self._fingerprint = name, fingerprint(self._loaded.model)
        return self._loaded

    def check_model(self) -> None:
        """Drop the model if a cell has changed it; the next cell loads it again."""
        if self._loaded and fingerprint(self._loaded.model) != self._fingerprint:
            self._loaded = None

    def evaluator(self, loaded: LoadedModel) -> Evaluator:
        """Return an evaluator of the model."""
        return Evaluator(loaded, self.machine.eval_batch_size)

    def split(self, stream: str, seed: int) -> Split:
        """Return the items of a stream."""
        key = stream, seed
        if key not in self._splits:
            self._splits[key] = make_split(stream, seed, self.machine.source, self.plan.sizes)
        return self._splits[key]

    def bystanders(self, stream: str, seed: int) -> Bystanders:
        """Return what is measured beside a stream's own items; a small protocol has few."""
        key = stream, seed
        if key not in self._bystanders:
            split, most = self.split(stream, seed), self.plan.sizes.heldout
            self._bystanders[key] = find_bystanders(split, self.machine.source, most)
        return self._bystanders[key]

    def published_sets(self, stream: str, seed: int) -> list[PublishedSet]:
        """Return what a stream's own published scores are measured on."""
        most = self.plan.sizes.heldout
        return published_sets(self.split(stream, seed), self.machine.source, most)

    def _beside_digest(self, stream: str, seed: int) -> str:
        """Return a digest of what is measured beside the split's items."""
        key = stream, seed
        if key not in self._beside:
            found = self.bystanders(stream, seed)
            words = {
                "witnesses": {
                    name: [[example.prompt, example.answer] for example in examples]
                    for name, examples in found.witnesses.items()
                },
                "siblings": [item.digest for item in found.siblings],
                "prompts": list(found.prompts),
                "published": {
                    part.name: [item.digest for item in part.items]
                    for part in self.published_sets(stream, seed)
                },
            }
            self._beside[key] = _sha256(words)
        return self._beside[key]

    @cached_property
    def tofu(self) -> TofuStream:
        """TOFU's requests and evaluation sets."""
        return make_tofu_stream(self.machine.source, self.plan.tofu)

    def measure(self, loaded: LoadedModel, task: str, items: Sequence[Item]) -> TaskResult:
        """Evaluate the current model on these items."""
        return evaluate_task(self.evaluator(loaded), find_task(task), items, task)

    def measure_untouched(
        self, loaded: LoadedModel, task: str, items: Sequence[Item]
    ) -> TaskResult:
        """Evaluate the model before any request; once for all methods."""
        key = (task, *(item.digest for item in items))
        if key not in self._before:
            self._before[key] = self.measure(loaded, task, items)
        return self._before[key]

    def inputs(self, cell: Cell) -> str:
        """Return a digest of everything that a cell's result depends on."""
        return _sha256(self.facts(cell))

    def facts(self, cell: Cell) -> dict[str, Any]:
        """Return everything that a cell's result depends on, data and models by their digests."""
        settings = self.plan.settings(cell.variant)
        facts: dict[str, Any] = {
            "format": _FORMAT,
            "kind": cell.kind,
            "method": cell.variant.method,
            "settings": settings.filed_under() if settings else None,
            "seed": cell.seed,
            "dtype": self.plan.dtype,
            "model": model_identity(self.plan.model_of(cell)),
        }
        if cell.kind == "tofu":
            facts |= {"sizes": self.plan.tofu.filed_under(), "data": self.tofu.digest}
        else:
            data = self.split(cell.stream, cell.seed).digest
            facts |= {"sizes": asdict(self.plan.sizes), "data": data}
            length = find_task(cell.stream).max_length
            # Left out where it is the usual one, so that cells of before are kept.
            facts |= {"max_length": length} if length != Task.max_length else {}
        if cell.kind == "stream":
            facts["beside"] = self._beside_digest(cell.stream, cell.seed)
        if cell.kind == "robust":
            facts["attack"] = asdict(self.plan.attack_on(cell.stream))
        return facts


def _sha256(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
