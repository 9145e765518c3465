"""The honest measures of a stream's result; None for what an older result does not hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tfrnet.evaluation.metrics.oracle import Answers
from tfrnet.evaluation.yardsticks import (
    Figures,
    bystander_summary,
    honest_figures,
    oracle_figures,
)
from tfrnet_bench.results import CellResult, Part


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


def measure(
    name: str, oracles: Mapping[int, CellResult] | None = None
) -> Callable[[CellResult], float | None]:
    """Return a function that reads one of the measures from a result."""

    def read(result: CellResult) -> float | None:
        oracle = (oracles or {}).get(result.seed)
        return {**honest(result), **against_oracle(result, oracle)}.get(name)

    return read


def _last_answers(items: Part) -> Answers:
    right = [bit == "1" for bit in items["correct"][-1]]
    return Answers(right, items["losses"]["after"], items["said"])
