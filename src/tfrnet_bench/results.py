"""The results of a bench run, read once for tables, figures and pages."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from tfrnet.core.errors import InputError
from tfrnet.data.protocol import STREAMS
from tfrnet.evaluation.metrics.continual import CHECKPOINTS
from tfrnet_bench.constants import FIRST_TUNING_SEED, ORACLE, STREAM, TASK_ORACLE
from tfrnet_bench.run_folder import CellFolder, CellKey, cell_folders, is_run_folder, read_plans
from tfrnet_bench.seeds import Seeds

# A part of a result that only some readers look into, as it stands in the file.
Part = Mapping[str, Any]


@dataclass(frozen=True)
class CellResult:
    """One finished cell. The fields have the names they have in result.json.

    What a kind of cell does not measure is empty. `samples` are questions and answers in words,
    where they were kept.
    """

    kind: str
    stream: str
    variant: str
    seed: int
    method: str = ""
    preset: str = ""
    overrides: Sequence[str] = ()
    settings: Part = field(default_factory=dict)
    protocol: Part = field(default_factory=dict)
    inputs: str = ""
    model: Part = field(default_factory=dict)
    provenance: Part = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    peak_bytes: int = 0
    requests: Sequence[Part] = ()
    answers: Sequence[Part] = ()
    samples: Sequence[Part] = ()
    # Of a stream.
    checkpoints: Sequence[Part] = ()
    scores: Mapping[str, float] = field(default_factory=dict)
    untouched: Mapping[str, float] = field(default_factory=dict)
    floors: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    forgetting: Part = field(default_factory=dict)
    items: Part = field(default_factory=dict)
    bystanders: Part = field(default_factory=dict)
    published: Part = field(default_factory=dict)
    structure: Part = field(default_factory=dict)
    channel_map: Part = field(default_factory=dict)
    # Of TOFU.
    tofu: Part = field(default_factory=dict)
    privacy: Part = field(default_factory=dict)
    truth_ratios: Sequence[float] = ()
    privacy_scores: Mapping[str, Sequence[Sequence[float]]] = field(default_factory=dict)
    # Of attacks.
    robustness: Part = field(default_factory=dict)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], samples: Sequence[Part] = ()) -> CellResult:
        """Return the result that a result.json holds."""
        known = {f.name: values[f.name] for f in fields(cls) if values.get(f.name) is not None}
        return cls(**({"method": values["variant"]} | known | {"samples": samples}))

    @property
    def key(self) -> CellKey:
        """The cell that it is the result of."""
        return CellKey(self.kind, self.stream, self.variant, self.seed)

    @property
    def is_ablation(self) -> bool:
        """Whether the variant is anything other than a method with one of its presets."""
        names = self.method, f"{self.method}-{self.preset}"
        return self.variant not in names and not self.is_oracle

    @property
    def is_oracle(self) -> bool:
        """Whether it is no method's, but a model's that was trained without the stream's items."""
        return self.kind == STREAM and self.variant == TASK_ORACLE

    @property
    def device(self) -> str:
        """Where it was computed; empty if that is not known."""
        return str(self.provenance.get("device", ""))

    @property
    def request_seconds(self) -> list[float]:
        """The seconds of each request, where they were measured."""
        found = (request.get("seconds", {}).get("total") for request in self.requests)
        return [value for value in found if value is not None]

    def request_bytes(self, name: str) -> list[float]:
        """Return the memory of each request, where it was measured: `peak`, `before` or `state`."""
        found = (request.get("memory", {}).get(name) for request in self.requests)
        return [value for value in found if value is not None]


@dataclass(frozen=True)
class CellFailure:
    """A cell that has no result, and why."""

    key: CellKey
    error: str


@dataclass(frozen=True)
class Run:
    """The results of a run so far, by kind, stream and variant.

    `unfinished` are cells that were begun and have neither a result nor an error.
    """

    results: Sequence[CellResult]
    failures: Sequence[CellFailure] = ()
    unfinished: Sequence[CellKey] = ()
    plans: Sequence[Part] = ()
    name: str = ""

    def __post_init__(self) -> None:
        if len(self._by_key) < len(self.results):
            raise InputError("there are two results of one cell")
        for key in self._by_key:
            if key.seed >= FIRST_TUNING_SEED:
                raise InputError(
                    f"{key} is on a tuning seed; only seeds below {FIRST_TUNING_SEED} are reported"
                )

    def of_kind(self, kind: str) -> list[CellResult]:
        """Return all results of a kind."""
        return [result for key, result in self._by_key.items() if key.kind == kind]

    def by_seed(self, kind: str, stream: str, variant: str) -> dict[int, CellResult]:
        """Return the results of a variant on a stream."""
        wanted = kind, stream, variant
        return {key.seed: found for key, found in self._by_key.items() if key[:3] == wanted}

    def streams(self, kind: str) -> list[str]:
        """Return the streams that were tried."""
        found = {key.stream for key in self._tried if key.kind == kind}
        return [name for name in STREAMS if name in found] + sorted(found.difference(STREAMS))

    @property
    def averaged_streams(self) -> list[str]:
        """The streams that means are taken over: the paper's where there are any, or else all.

        The others are of other models.
        """
        found = self.streams(STREAM)
        return [stream for stream in found if stream in STREAMS] or found

    def variants(self, kind: str, stream: str | None = None) -> list[str]:
        """Return the variants that were tried, by name."""
        return sorted(
            {
                key.variant
                for key in self._tried
                if key.kind == kind and stream in (None, key.stream)
            }
        )

    def seeds(
        self, kind: str, stream: str, variant: str, number: Callable[[CellResult], float | None]
    ) -> Seeds:
        """Return a number by seed; every seed that the stream was run with is expected."""
        return Seeds(
            {s: number(result) for s, result in self.by_seed(kind, stream, variant).items()},
            frozenset(key.seed for key in self._tried if key[:2] == (kind, stream)),
            frozenset(key.seed for key in self._failed if key[:3] == (kind, stream, variant)),
            (kind, stream, variant) in self.mixed,
        )

    def checkpoints(self) -> tuple[int, ...]:
        """Return the requests after which streams were measured; the last one ends the stream."""
        found = {
            tuple(point["request"] for point in result.checkpoints if point["request"])
            for result in self.of_kind(STREAM)
        }
        if len(found) > 1:
            raise InputError(
                "the results are measured after different requests: they do not belong in one table"
            )
        return found.pop() if found else CHECKPOINTS

    @cached_property
    def mixed(self) -> list[tuple[str, str, str]]:
        """The kind, stream and variant of cells with other settings or models on some seeds."""
        found: dict[tuple[str, str, str], list[Part]] = defaultdict(list)
        for key, result in self._by_key.items():
            # Every seed may have an oracle of its own.
            is_oracle = key.variant in (ORACLE, TASK_ORACLE)
            model = {} if is_oracle else {"model": result.model.get("digest")}
            found[key[:3]].append({**result.settings, **model})
        return [key for key, settings in found.items() if _differ(settings)]

    @cached_property
    def _by_key(self) -> dict[CellKey, CellResult]:
        return {result.key: result for result in sorted(self.results, key=lambda r: r.key)}

    @cached_property
    def _failed(self) -> frozenset[CellKey]:
        return frozenset(failure.key for failure in self.failures) - self._by_key.keys()

    @cached_property
    def _tried(self) -> frozenset[CellKey]:
        return self._failed | self._by_key.keys()


def _differ(settings: Sequence[Part]) -> bool:
    """Tell whether a setting has several values; one that came later is not in all records."""
    names = {name for part in settings for name in part}
    return any(
        len({json.dumps(part[name]) for part in settings if name in part}) > 1 for name in names
    )


def read_run(folder: Path) -> Run:
    """Read every cell; one whose files cannot be read counts as failed."""
    if not is_run_folder(folder):
        raise InputError(f"{folder} is not the folder of a bench run: no bench.json and no cells")
    results: list[CellResult] = []
    failures: list[CellFailure] = []
    unfinished: list[CellKey] = []
    for cell in cell_folders(folder):
        match _read_cell(cell):
            case CellResult() as result:
                results.append(result)
            case CellFailure() as failure:
                failures.append(failure)
            case None:
                unfinished.append(cell.key)
    return Run(results, failures, unfinished, read_plans(folder), folder.resolve().name)


def _read_cell(cell: CellFolder) -> CellResult | CellFailure | None:
    # A cell that failed and was run again may have both; then the result counts.
    if cell.result.is_file():
        try:
            return CellResult.from_dict(cell.read_result(), cell.read_samples())
        except (ValueError, TypeError) as problem:
            return CellFailure(cell.key, f"its files cannot be read: {problem}")
    return CellFailure(cell.key, cell.read_error()) if cell.error.is_file() else None
