"""One row of the scale table: a method on a model of some shape, and what a request costs."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from benchmarks.scale_count import counted, floor, optimiser_bytes, scoring_operations
from benchmarks.scale_rates import Rates, timed
from benchmarks.scale_shapes import Sizes, Writer, build_tokenizer
from tfrnet.core.outcome import Outcome
from tfrnet.core.settings import Settings
from tfrnet.data.examples import Encoded, Example, encode_all
from tfrnet.data.requests import Request
from tfrnet.method import find_method
from tfrnet.methods.tfr.scoring import ScoreOptions, ScoreSet, score_sets
from tfrnet.unlearner import Unlearner

ALL_CHANNELS = "all-linear"
# Every method is measured at this length, and one also at others and on fewer channels.
METHOD_LENGTH = 256
OVER_LENGTHS = "tfr-paper"
# A random model's loss is above the ceilings at which methods say that all is forgotten.
_NO_CEILING = 1000.0
# A random model knows no answer: only the least likely of the other answers is below it, and no
# number of steps gets there. Real requests take two to nine on average.
_DEFAULT_STEP = {"level_quantile": 1.0, "least_reached": 0.0, "steps": 5}

# Method, preset, and what is trained (nothing: a mask).
VARIANTS: dict[str, tuple[str, str, str]] = {
    "tfr-paper": ("tfr", "paper", ""),
    "tfr-paper-compiled": ("tfr", "paper", ""),
    "tfr": ("tfr", "deep", ""),
    "tfr-compiled": ("tfr", "deep", ""),
    "tfr-default": ("tfr", "default", ""),
    "tfr-default-compiled": ("tfr", "default", ""),
} | {
    f"{name}{ending}": (name, "default", trained)
    for name in ("ga", "graddiff", "rmu", "simnpo", "asu")
    for ending, trained in (("", "full"), ("-lora", "lora"))
}


@dataclass(frozen=True)
class Case:
    """What is measured. `channels`: which projections TFR-Net masks, joined by +.

    `batch_size` none means that the method finds its own.
    """

    shape: str
    method: str
    length: int
    channels: str = ALL_CHANNELS
    batch_size: int | None = 8

    @property
    def compiled(self) -> bool:
        """Whether the model's layers are compiled."""
        return self.method.endswith("-compiled")

    def to_dict(self) -> dict[str, Any]:
        """Return the case as plain JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class Bench:
    """A model to measure on, the machine's rates, and how often a request is timed."""

    model: PreTrainedModel
    rates: Rates
    repeats: int = 3
    sizes: Sizes = field(default_factory=Sizes)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        device: torch.device = self.model.device
        return device


@dataclass(frozen=True)
class Data:
    """The examples of a case, and two requests: one to warm up with, one that is measured."""

    tokenizer: PreTrainedTokenizerFast
    retain: list[Example]
    guard: list[Example]
    first: Request
    second: Request


@dataclass(frozen=True)
class Run:
    """One timed request."""

    seconds: float
    peak: int
    outcome: Outcome


def measure_case(case: Case, bench: Bench) -> dict[str, Any]:
    """Return what a request costs after the first, in the state that the first has left.

    The same request is worked out several times, which changes nothing, so all of them do the
    same work; the last is then taken over, and that time added.
    """
    data = _data(case, bench.sizes)
    config = settings(case, bench)
    weight_bytes = sum(p.nbytes for p in bench.model.parameters())
    unlearner = find_method(VARIANTS[case.method][0])(
        bench.model,
        data.tokenizer,
        data.retain,
        config,
        guard=data.guard,
        batch_size=case.batch_size,
        compiled=case.compiled,
    )
    try:
        first_seconds, _ = timed(lambda: unlearner.forget(data.first), bench.device)
        with uncompiled(unlearner), counted() as work:
            unlearner.propose(data.second)
        gc.collect()
        runs, adopt_seconds = _timed_requests(unlearner, data.second, bench)
        record = _costs(runs, adopt_seconds, weight_bytes) | _size(unlearner)
        record["own_seconds"] = record["seconds"] - _measuring_seconds(record, config)
        seconds, steps = record["seconds"], record["gradient_steps"]
        trained = getattr(unlearner.effect, "parameters", {}).values()
        moved = work.weight_bytes + optimiser_bytes(trained, steps)
        record |= {
            "first_request_seconds": first_seconds,
            "operations": work.operations,
            "moved_bytes": moved,
            "matrix_rate": bench.rates.matrix,
            "bandwidth": bench.rates.bandwidth,
            "floor": floor(work.operations, moved, bench.rates),
            "share_of_rate": work.operations / seconds / bench.rates.matrix,
            "settings": config.to_dict(),
            "passes": asdict(unlearner.passes),
        }
        if case.method.startswith("tfr"):
            record["scoring"] = _measure_scoring(unlearner, data, bench)
    finally:
        unlearner.detach()
    return record


@contextmanager
def uncompiled(unlearner: Any) -> Iterator[None]:
    """Let requests run as written meanwhile: nothing can be counted inside compiled code."""
    passes = unlearner.passes
    unlearner.passes = replace(passes, compiled=False)
    try:
        yield
    finally:
        unlearner.passes = passes


def settings(case: Case, bench: Bench) -> Settings:
    """Return the settings of a case: the preset's, and what length and sizes ask for."""
    name, preset, trained = VARIANTS[case.method]
    kind = find_method(name).config_class
    values = kind.preset(preset).to_dict()
    last_layer = bench.model.config.num_hidden_layers - 1
    wanted = {
        "max_length": case.length,
        "retain_examples": bench.sizes.retain,
        "guard_examples": bench.sizes.guard,
        "forget_ceiling": _NO_CEILING,
        "layer": min(last_layer, values.get("layer", 0)),
        "trained": trained,
    }
    if not trained:
        wanted["target_modules"] = _modules(case.channels)
    if values.get("step") == "calibrate":
        wanted |= _DEFAULT_STEP
    # What a method does not have, or has no effect under its step, stays as it is.
    return kind.from_record(values | {key: wanted[key] for key in wanted if key in values})


def _modules(channels: str) -> str | list[str]:
    return channels if channels == ALL_CHANNELS else channels.split("+")


def _data(case: Case, sizes: Sizes) -> Data:
    writer = Writer(case.shape, case.length)
    return Data(
        build_tokenizer(case.shape),
        writer.examples(sizes.retain),
        writer.examples(sizes.guard),
        writer.request(sizes.forget),
        writer.request(sizes.forget),
    )


def _timed_requests(
    unlearner: Unlearner[Any], request: Request, bench: Bench
) -> tuple[list[Run], float]:
    runs = [_run(unlearner, request, bench)[0] for _ in range(bench.repeats - 1)]
    last, adopt_seconds = _run(unlearner, request, bench, adopt=True)
    return [*runs, last], adopt_seconds


def _run(
    unlearner: Unlearner[Any], request: Request, bench: Bench, adopt: bool = False
) -> tuple[Run, float]:
    """Time one request, without keeping its state while the next one runs."""
    seconds, proposal = timed(lambda: unlearner.propose(request), bench.device)
    adopt_seconds = 0.0
    if adopt:
        adopt_seconds, _ = timed(lambda: unlearner.adopt(proposal), bench.device)
    peak = proposal.outcome.memory["peak"]
    if bench.device.type == "cuda":
        peak = max(peak, torch.cuda.max_memory_allocated(bench.device))
    return Run(seconds, peak, proposal.outcome), adopt_seconds


def _costs(runs: Sequence[Run], adopt_seconds: float, weight_bytes: int) -> dict[str, Any]:
    outcome = runs[-1].outcome
    peak = max(run.peak for run in runs)
    stages = {
        stage: statistics.median(run.outcome.seconds[stage] for run in runs)
        for stage in outcome.seconds
    }
    return {
        "seconds": statistics.median(run.seconds for run in runs) + adopt_seconds,
        "seconds_of_runs": [run.seconds for run in runs],
        "adopt_seconds": adopt_seconds,
        "seconds_by_stage": stages,
        "peak_bytes": peak,
        "weight_bytes": weight_bytes,
        "peak_over_weights": peak / weight_bytes,
        "state_bytes": outcome.memory["state"],
        "outcome": outcome.outcome,
        "reason": outcome.reason,
        "attempts": outcome.attempts,
        "gradient_steps": outcome.details.get("steps", 0),
    }


def _measuring_seconds(record: dict[str, Any], config: Any) -> float:
    """Return the seconds of losses that are told in the record and decide nothing."""
    stages = ["forget_loss"] if config.use_guard else ["forget_loss", "guard"]
    by_stage: dict[str, float] = record["seconds_by_stage"]
    return sum(by_stage.get(stage, 0.0) for stage in stages)


def _size(unlearner: Unlearner[Any]) -> dict[str, int]:
    """Return how many numbers a method may change: channels of a mask, or trained weights."""
    count = sum(width for _, width in unlearner.layout())
    return {"channels" if unlearner.method == "tfr" else "trained_parameters": count}


def _measure_scoring(unlearner: Any, data: Data, bench: Bench) -> dict[str, Any]:
    """Return what scoring alone costs: the request's examples with the retain examples."""
    config = unlearner.config
    sets = [
        encode_all(examples, data.tokenizer, config.max_length, "scored")
        for examples in (data.second.examples, data.retain)
    ]
    passes = unlearner.passes
    options = ScoreOptions(
        batch_size=passes.examples,
        tokens=config.score_tokens,
        gradient_checkpointing=passes.gradient_checkpointing,
        max_tokens=passes.tokens,
        overhead=passes.overhead,
    )

    def score() -> None:
        score_sets(unlearner.mask, [ScoreSet(examples) for examples in sets], options)

    with counted() as work:
        score()
    with unlearner.mask.compiled() if passes.compiled else nullcontext():
        score()
        seconds = statistics.median(timed(score, bench.device)[0] for _ in range(bench.repeats))
    # Less where the backward pass ends early, above the first channels.
    needed = min(sum(_needed_operations(bench.model, each) for each in sets), work.operations)
    rate = bench.rates.matrix
    return {
        "seconds": seconds,
        "operations": work.operations,
        "share_of_rate": work.operations / seconds / rate,
        "needed_operations": needed,
        "needed_share_of_rate": needed / seconds / rate,
    }


def _needed_operations(model: PreTrainedModel, examples: Sequence[Encoded]) -> int:
    # An example's last token is only ever predicted.
    inputs = [len(example.ids) - 1 for example in examples]
    answers = sum(example.answer_length for example in examples)
    return scoring_operations(model.config, sum(inputs), answers, inputs[0])
