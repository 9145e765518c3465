"""The table of TOFU: utility, forget quality, privacy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from tfrnet.evaluation.metrics.tofu import forget_quality
from tfrnet_bench.report.bench_run import NO_OP, Cell
from tfrnet_bench.report.pick import figure_at, present
from tfrnet_bench.report.table import MEANING, Row, Table, mean, text

# The variant that is a model trained without the forget set.
ORACLE = "retain90"


def tofu_table(cells: Sequence[Cell]) -> Table | None:
    """Return utility, forget quality and privacy by variant; None without cells of TOFU."""
    columns = {
        "Utility": lambda cell: figure_at(cell.result, "tofu", "model_utility"),
        "log10 forget quality": lambda cell: _forget_quality(cell, cells),
        "Forget prob.": lambda cell: figure_at(
            cell.result, "tofu", "sets", "forget", "probability"
        ),
        "Forget ROUGE": lambda cell: figure_at(cell.result, "tofu", "sets", "forget", "rouge"),
        "Retain ROUGE": lambda cell: figure_at(cell.result, "tofu", "sets", "retain", "rouge"),
        "MIA gap": lambda cell: figure_at(cell.result, "privacy", "mia_gap"),
        "AUC loss": lambda cell: figure_at(cell.result, "privacy", "auc", "loss", "value"),
    }
    rows = []
    for variant, group in _grouped(cells).items():
        values = [mean(present(map(column, group)), 3) for column in columns.values()]
        style = "no-op" if variant in (NO_OP, ORACLE) else ""
        rows.append(Row([text(variant), *values], style))
    if not rows:
        return None
    return Table(
        "TOFU",
        ["Method", *columns],
        rows,
        {
            "Utility": "Model Utility: harmonic mean of nine numbers on the sets to keep.",
            "log10 forget quality": "Logarithm of the p-value of a Kolmogorov-Smirnov test "
            "of the truth ratios against the model that never saw the forget set; 0 is best.",
            "Forget prob.": "Mean probability of the right answer on the forget set.",
            "MIA gap": "Mean distance of the membership attacks' AUC from 0.5; lower is better.",
            "AUC loss": "AUC of the membership attack by loss; 0.5 is chance.",
        },
        order="Utility",
        note=f"{NO_OP}: the untouched model; {ORACLE}: a model that never saw the forget set. "
        f"{MEANING}",
    )


def _forget_quality(cell: Cell, cells: Sequence[Cell]) -> float | None:
    known = figure_at(cell.result, "tofu", "forget_quality", "log10_p")
    oracle = next((c for c in cells if (c.variant, c.seed) == (ORACLE, cell.seed)), None)
    if known is not None or oracle is None or cell is oracle:
        return known
    ratios = [c.result.get("truth_ratios") or [] for c in (cell, oracle)]
    if not ratios[0] or len(ratios[0]) != len(ratios[1]):
        return None
    return forget_quality(*ratios).log10_p


def _grouped(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    groups: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells:
        groups[cell.variant].append(cell)
    return groups
