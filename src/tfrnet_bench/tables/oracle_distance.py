"""Comparing a TOFU result with that of the model that never saw the forget set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tfrnet.evaluation.metrics.membership import PrivLeak, auc, privleak
from tfrnet.evaluation.metrics.tofu_scores import ForgetQuality, forget_quality
from tfrnet.evaluation.privacy import LEAK_ATTACK
from tfrnet_bench.results import CellResult


@dataclass(frozen=True)
class OracleComparison:
    """How far a model is from the retain-only one, in privacy and in its truth ratios."""

    leak: PrivLeak
    quality: ForgetQuality


def compare_results(result: CellResult, oracle: CellResult) -> OracleComparison:
    """Compare two stored results; both must be of the same rows."""
    aucs = (auc(*cell.privacy_scores[LEAK_ATTACK]) for cell in (result, oracle))
    return OracleComparison(
        privleak(*aucs), forget_quality(result.truth_ratios, oracle.truth_ratios)
    )


def oracle_of(result: CellResult, oracles: Mapping[int, CellResult]) -> CellResult | None:
    """Return the oracle of the result's seed; one that was run once serves all seeds."""
    if len(oracles) == 1:
        return next(iter(oracles.values()))
    return oracles.get(result.seed)
