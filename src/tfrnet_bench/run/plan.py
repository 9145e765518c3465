"""The cells of an experiment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any, get_args

from tfrnet.core.errors import InputError
from tfrnet.core.settings import Settings
from tfrnet.data.protocol import STREAMS, Sizes, check_stream
from tfrnet.data.tasks import find_task
from tfrnet.data.tofu import SIZES, Template
from tfrnet.evaluation.attacking.subject import AttackOptions
from tfrnet.evaluation.metrics.continual import quarters
from tfrnet.evaluation.tofu import TofuOptions
from tfrnet.method import find_method
from tfrnet_bench.constants import FIRST_TUNING_SEED, ORACLE, TASK_ORACLE, UNTOUCHED
from tfrnet_bench.run.cell import Cell
from tfrnet_bench.run.variants import (
    TUNED,
    Variant,
    ablations,
    all_methods,
    methods_with_controls,
    structures,
    with_preset,
)
from tfrnet_bench.run_folder import CellKey

EXPERIMENTS = ("main", "ablation", "tofu", "structure", "robust", "lume", "knowundo")
# Experiments that are one stream of their own, on a model of their own.
PRIVATE_DATA = ("lume", "knowundo")
# The paper's.
ALL = tuple(name for name in EXPERIMENTS if name not in PRIVATE_DATA)
# The slowest cells come first, so that no process is left working alone at the end.
_SLOWEST = ("llm-eraser", "npo", "simnpo", "o3", "asu")


@dataclass(frozen=True)
class TofuSizes:
    """The TOFU stream: every request is one author's questions.

    `rows` limits what is measured of each set, to rows of one author after another.

    `forget` is TOFU's forget set, the last 1, 5 or 10 % of the authors: 2, 10 or 20 of them.
    """

    requests: int = 20
    retain: int = 480
    guard: int = 64
    rows: int | None = None
    new_tokens: int = 200
    forget: str = "10"
    template: Template = "qa"

    def __post_init__(self) -> None:
        if self.forget not in SIZES or self.template not in get_args(Template):
            raise InputError(
                f"TOFU's forget set is one of {', '.join(SIZES)} and its template one of "
                f"{', '.join(get_args(Template))}; not {self.forget} and {self.template}"
            )

    @property
    def models(self) -> tuple[str, str]:
        """The shipped models that know TOFU in this form: all of it, and without the forget set."""
        form = "smollm2-tofu" if self.template == "qa" else "smollm2-tofu-chat"
        return f"{form}-full", f"{form}-retain90"

    def on(self, forget: str, template: Any) -> TofuSizes:
        """Return the stream of another forget set, which may have fewer authors."""
        changed = replace(self, forget=forget, template=template)
        return replace(changed, requests=min(self.requests, 2 * int(forget)))

    @property
    def options(self) -> TofuOptions:
        """How the stream's questions are asked and scored."""
        return TofuOptions(
            template=self.template, max_new_tokens=self.new_tokens, forget=self.forget
        )

    def filed_under(self) -> dict[str, Any]:
        """Return what results are filed under: fields that came later count if they are used."""
        later = {"forget": "10", "template": "qa"}
        return {n: v for n, v in asdict(self).items() if n not in later or v != later[n]}


@dataclass(frozen=True)
class BenchPlan:
    """What is run, on which models, data and seeds. Everything that a result depends on."""

    experiments: tuple[str, ...]
    methods: tuple[str, ...] = field(default_factory=all_methods)
    streams: tuple[str, ...] = STREAMS
    seeds: tuple[int, ...] = (0, 1, 2)
    preset: str = TUNED
    model: str = "smollm2-tasks"
    tofu_model: str = "smollm2-tofu-full"
    oracle: str = "smollm2-tofu-retain90"
    lume_model: str = "smollm2-lume"
    knowundo_model: str = "smollm2-knowundo"
    # Models that never saw what is forgotten; without one nothing is compared with it. `{seed}` and
    # `{stream}` in their names stand for these, where each has an oracle of its own.
    task_oracle: str = ""
    lume_oracle: str = ""
    knowundo_oracle: str = ""
    dtype: str = "float32"
    sizes: Sizes = field(default_factory=Sizes)
    tofu: TofuSizes = field(default_factory=TofuSizes)
    attack: AttackOptions = field(default_factory=AttackOptions)
    # Settings that are lowered where a method has them: (name, value).
    reduced: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        for name in self.experiments:
            if name not in EXPERIMENTS:
                raise InputError(
                    f"unknown experiment {name!r}; choose from {', '.join(EXPERIMENTS)}, all"
                )
        for stream in self.streams:
            check_stream(stream)
        for seed in self.seeds:
            if seed < 0 or seed >= FIRST_TUNING_SEED:
                raise InputError(
                    f"seed {seed} cannot be reported: seeds from {FIRST_TUNING_SEED} on are for "
                    "tuning, and below 0 there are none"
                )
        for name, values in vars(self).items():
            if name in ("experiments", "methods", "streams", "seeds") and not values:
                raise InputError(f"{name} is empty; name at least one")
        for method in self.methods:
            with_preset(method, self.preset)  # raises if it has none of that name

    def cells(self) -> list[Cell]:
        """Return every cell once, one seed after another: a run cut short has whole seeds."""
        found: dict[CellKey, Cell] = {}
        for seed in self.seeds:
            of_seed = [cell for name in self.experiments for cell in self._experiment(name, seed)]
            for cell in sorted(of_seed, key=_rank):
                found.setdefault(cell.key, cell)
        return list(found.values())

    def settings(self, variant: Variant) -> Settings | None:
        """Return what a variant runs with."""
        settings = variant.settings()
        if settings is None:
            return None
        acting = settings.effective()
        changes = [f"{name}={value}" for name, value in self.reduced if name in acting]
        return settings.with_overrides(changes)

    @property
    def checkpoints(self) -> tuple[int, ...]:
        """The requests after which held-out items are measured: each quarter of the stream."""
        return quarters(self.sizes.requests)

    def models(self) -> list[str]:
        """Return the models that are needed."""
        needed = [self._model_on(stream) for stream in self.all_streams()]
        needed += list(self.oracles().values())
        return needed + ([self.tofu_model, self.oracle] if "tofu" in self.experiments else [])

    def all_streams(self) -> list[str]:
        """Return the streams of all experiments, but TOFU's."""
        usual = any(name not in (*PRIVATE_DATA, "tofu") for name in self.experiments)
        own = [name for name in PRIVATE_DATA if name in self.experiments]
        return list(dict.fromkeys([*(self.streams if usual else ()), *own]))

    def _model_on(self, stream: str) -> str:
        special = {"lume": self.lume_model, "knowundo": self.knowundo_model}
        return special.get(stream, self.model)

    def model_of(self, cell: Cell) -> str:
        """Return the model that a cell starts from."""
        if cell.kind == "stream" and cell.variant.label == TASK_ORACLE:
            return self._oracle_of(cell.stream, cell.seed)
        if cell.kind != "tofu":
            return self._model_on(cell.stream)
        return self.oracle if cell.variant.label == ORACLE else self.tofu_model

    def attack_on(self, stream: str) -> AttackOptions:
        """Return how a stream's model is attacked: its prompts may be as long as the task's."""
        return replace(self.attack, max_length=find_task(stream).max_length)

    def oracles(self) -> dict[tuple[str, int], str]:
        """Return the model that never saw what is forgotten, for each stream that has one."""
        own = [name for name in PRIVATE_DATA if name in self.experiments]
        streams = [*(self.streams if "main" in self.experiments else ()), *own]
        return {
            (stream, seed): name
            for stream in streams
            for seed in self.seeds
            if (name := self._oracle_of(stream, seed))
        }

    def _oracle_of(self, stream: str, seed: int) -> str:
        special = {"lume": self.lume_oracle, "knowundo": self.knowundo_oracle}
        name = special.get(stream, self.task_oracle)
        return name.replace("{seed}", str(seed)).replace("{stream}", stream)

    def _experiment(self, name: str, seed: int) -> Iterator[Cell]:
        if name == "tofu":
            for variant in self._tofu_variants():
                yield Cell("tofu", variant, "tofu", seed)
            return
        for stream in (name,) if name in PRIVATE_DATA else self.streams:
            for variant in self._variants(name):
                yield Cell("robust" if name == "robust" else "stream", variant, stream, seed)
            if name in ("main", *PRIVATE_DATA) and self._oracle_of(stream, seed):
                yield Cell("stream", Variant(TASK_ORACLE, UNTOUCHED), stream, seed)

    def _variants(self, name: str) -> list[Variant]:
        if name in ("main", *PRIVATE_DATA):
            return methods_with_controls(self.methods, self.preset)
        if name == "ablation":
            return ablations(self.preset)
        if name == "structure":
            return structures(self.preset)
        # Without ordinary weights that act like it there is nothing to give an attacker.
        return [
            with_preset(method, self.preset)
            for method in self.methods
            if find_method(method).exportable
        ]

    def _tofu_variants(self) -> list[Variant]:
        return [
            Variant(UNTOUCHED, UNTOUCHED),
            Variant(ORACLE, UNTOUCHED),
            *(with_preset(method, self.preset) for method in self.methods),
        ]


def _rank(cell: Cell) -> int:
    method = cell.variant.method
    return _SLOWEST.index(method) if method in _SLOWEST else len(_SLOWEST)
