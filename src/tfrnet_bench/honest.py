"""The honest measures of a stream's result; None for what an older result does not hold."""

from __future__ import annotations

from dataclasses import replace

from tfrnet.evaluation.metrics.oracle import Answers
from tfrnet.evaluation.yardsticks import (
    Figures,
    bystander_summary,
    honest_figures,
    oracle_figures,
)
from tfrnet_bench.constants import STREAM, TASK_ORACLE, UNTOUCHED
from tfrnet_bench.results import CellResult, Part, Run
from tfrnet_bench.seeds import Seeds


def honest(result: CellResult) -> Figures:
    """Return the measures that need no other result."""
    chance = result.floors.get("forget", {}).get("random")
    scores: Figures = {}
    if chance is not None and "seen" in result.forgetting:
        scores = honest_figures(result.forgetting, result.checkpoints, chance)
    return {
        "trade_off": result.scores.get("trade_off"),
        **scores,
        **bystander_summary(result.bystanders),
    }


def against_oracle(result: CellResult, oracle: CellResult | None) -> Figures:
    """Return the distances to the model that never saw the stream's items, at the end."""
    own, other = result.items, oracle.items if oracle else {}
    if not ("losses" in own and "losses" in other and own["keys"] == other["keys"]):
        return {}
    return oracle_figures(*(_last_answers(items) for items in (own, other)))


def measured(run: Run, stream: str, variant: str, name: str) -> Seeds:
    """Return one of the measures of a variant on a stream, by seed."""
    oracles = run.by_seed(STREAM, stream, TASK_ORACLE)
    untouched = run.by_seed(STREAM, stream, UNTOUCHED)

    def read(result: CellResult) -> float | None:
        distances = against_oracle(result, oracles.get(result.seed))
        if variant == TASK_ORACLE:
            result = _as_forgetting(result, untouched.get(result.seed))
        return {**honest(result), **distances}.get(name)

    return run.seeds(STREAM, stream, variant, read)


def _as_forgetting(oracle: CellResult, untouched: CellResult | None) -> CellResult:
    """Return an oracle's result as if the untouched model had become it.

    Nothing is left to be requested: it never saw any of the items.
    """
    if untouched is None or "accuracy" not in untouched.forgetting:
        return replace(oracle, forgetting={})
    before = {"accuracy": untouched.forgetting["accuracy"], "unseen": []}
    return replace(
        oracle,
        forgetting={**oracle.forgetting, **before},
        checkpoints=[untouched.checkpoints[0], *oracle.checkpoints[1:]],
    )


def _last_answers(items: Part) -> Answers:
    right = [bit == "1" for bit in items["correct"][-1]]
    return Answers(right, items["losses"]["after"], items["said"])
