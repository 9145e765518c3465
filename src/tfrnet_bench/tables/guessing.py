"""What a model that only guesses scores on a stream: the chance baseline."""

from __future__ import annotations

from collections.abc import Mapping

from tfrnet.data.protocol import STREAMS
from tfrnet.evaluation.metrics.continual import trade_off
from tfrnet_bench.constants import STREAM
from tfrnet_bench.results import Run
from tfrnet_bench.seeds import Seeds, combine

# By task, and for what is to be forgotten, the accuracy of each way to answer without knowledge.
Floors = Mapping[str, Mapping[str, float]]

# What is measured as the forget accuracy, beside the tasks' held-out items.
FORGET = "forget"
_GUESSED = "random"


def floors_by_seed(run: Run, stream: str) -> dict[int, Floors]:
    """Return the chance baselines; they are the same for all variants of a seed."""
    return {
        seed: result.floors
        for variant in run.variants(STREAM, stream)
        for seed, result in run.by_seed(STREAM, stream, variant).items()
    }


def guessed(run: Run, stream: str, part: str) -> Seeds:
    """Return the accuracy of guessing on a task's items, or on those to be forgotten."""
    floors = floors_by_seed(run, stream)
    values = {seed: found.get(part, {}).get(_GUESSED) for seed, found in floors.items()}
    return Seeds(values, frozenset(floors))


def guessed_score(run: Run, stream: str, name: str) -> Seeds:
    """Return one of a stream's scores as if every answer were a guess."""
    forget = guessed(run, stream, FORGET)
    # A stream of another task than the paper's has that task's held-out items as well.
    tasks = dict.fromkeys((*STREAMS, stream))
    retain = combine([guessed(run, stream, task) for task in tasks])
    scores = {
        "forget_average": forget,
        "forget_final": forget,
        "retain_average": retain,
        "trade_off": combine([forget, retain], lambda pair: trade_off(*pair)),
    }
    return scores[name]
