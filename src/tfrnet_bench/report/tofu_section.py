"""The page's table of TOFU: utility, forget quality, privacy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from tfrnet.evaluation.metrics.tofu_scores import forget_quality
from tfrnet_bench.constants import ORACLE, TOFU, UNTOUCHED
from tfrnet_bench.report.values import MEANING, figure_at, mean
from tfrnet_bench.results import CellResult, Run
from tfrnet_bench.tables.oracle_distance import oracle_of
from tfrnet_bench.tables.table import Table

Reader = Callable[[CellResult], float | None]


def tofu_table(run: Run) -> Table | None:
    """Return utility, forget quality and privacy by variant; None without cells of TOFU."""
    groups: dict[str, list[CellResult]] = defaultdict(list)
    for result in run.of_kind(TOFU):
        groups[result.variant].append(result)
    if not groups:
        return None
    columns: dict[str, Reader] = {
        "Utility": lambda result: figure_at(result.tofu, "model_utility"),
        "log10 forget quality": lambda result: _forget_quality(run, result),
        "Forget prob.": lambda result: figure_at(result.tofu, "sets", "forget", "probability"),
        "Forget ROUGE": lambda result: figure_at(result.tofu, "sets", "forget", "rouge"),
        "Retain ROUGE": lambda result: figure_at(result.tofu, "sets", "retain", "rouge"),
        "MIA gap": lambda result: figure_at(result.privacy, "mia_gap"),
        "AUC loss": lambda result: figure_at(result.privacy, "auc", "loss", "value"),
    }
    return Table(
        "tofu-by-variant",
        "TOFU",
        ["Method", *columns],
        [
            [variant, *(mean(map(read, group), 3) for read in columns.values())]
            for variant, group in groups.items()
        ],
        note=f"{UNTOUCHED}: the untouched model; {ORACLE}: a model that never saw the forget set. "
        f"{MEANING}",
        hints={
            "Utility": "Model Utility: harmonic mean of nine numbers on the sets to keep.",
            "log10 forget quality": "Logarithm of the p-value of a Kolmogorov-Smirnov test "
            "of the truth ratios against the model that never saw the forget set; 0 is best.",
            "Forget prob.": "Mean probability of the right answer on the forget set.",
            "MIA gap": "Mean distance of the membership attacks' AUC from 0.5; lower is better.",
            "AUC loss": "AUC of the membership attack by loss; 0.5 is chance.",
        },
        row_styles=dict.fromkeys((UNTOUCHED, ORACLE), "no-op"),
        order="Utility",
    )


def _forget_quality(run: Run, result: CellResult) -> float | None:
    oracle = oracle_of(result, run.by_seed(TOFU, TOFU, ORACLE))
    if oracle is None or result.variant == ORACLE:
        return None
    ratios = result.truth_ratios, oracle.truth_ratios
    if not ratios[0] or len(ratios[0]) != len(ratios[1]):
        return None
    return forget_quality(*ratios).log10_p
