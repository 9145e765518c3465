"""The paper's third table: privacy and utility after TOFU's forget set."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from tfrnet_bench.constants import ORACLE, TOFU, UNTOUCHED
from tfrnet_bench.paper import tofu_table
from tfrnet_bench.results import CellResult, Run
from tfrnet_bench.seeds import Seeds
from tfrnet_bench.tables.labels import in_order, variant_label
from tfrnet_bench.tables.oracle_distance import OracleComparison, compare_results, oracle_of
from tfrnet_bench.tables.table import Table

_PAPER_COLUMNS = (
    ("MIA Gap", "mia_gap", 4),
    ("PrivLeak", "privleak", 2),
    ("Model Utility", "model_utility", 4),
)


def tofu_tables(run: Run) -> list[Table]:
    """Return the table of TOFU, if it was run."""
    tried = run.variants(TOFU)
    if not tried:
        return []
    rows = [_row(run, variant) for variant in in_order({UNTOUCHED, ORACLE, *tofu_table(), *tried})]
    return [
        Table(
            "tofu",
            "Privacy and utility on TOFU",
            [
                "Model",
                "MIA Gap",
                "PrivLeak",
                "PrivLeak (signed)",
                "Model Utility",
                "Forget Quality (p)",
                "Forget ROUGE-L",
                "Forget probability",
                "n",
                *(f"{title} (paper)" for title, _, _ in _PAPER_COLUMNS),
            ],
            rows,
            "Mean over n seeds ± half of Student's 95 % interval; of the p-values, the median with "
            "the lowest and highest. PrivLeak and Forget Quality compare with the retain-only "
            "model (retain90); a negative signed PrivLeak is too little forgotten. The paper's "
            "numbers are of another model, and of an oracle that it does not describe.",
        )
    ]


def _row(run: Run, variant: str) -> list[str]:
    def text(read: Callable[[CellResult], float | None], digits: int) -> str:
        return run.seeds(TOFU, TOFU, variant, read).text(digits)

    def utility(result: CellResult) -> float:
        return float(result.tofu["model_utility"])

    leak, signed, quality = _beside_oracle(run, variant)
    return [
        variant_label(variant),
        text(lambda result: float(result.privacy["mia_gap"]), 4),
        leak,
        signed,
        text(utility, 4),
        quality,
        text(_forget_figure("rouge"), 4),
        text(_forget_figure("probability"), 4),
        str(len(run.by_seed(TOFU, TOFU, variant))),
        *_paper_cells(variant),
    ]


def _forget_figure(name: str) -> Callable[[CellResult], float]:
    return lambda result: float(result.tofu["sets"]["forget"][name])


def _beside_oracle(run: Run, variant: str) -> tuple[str, str, str]:
    """Return PrivLeak, signed PrivLeak and Forget Quality, or why there are none."""
    present = run.seeds(TOFU, TOFU, variant, lambda result: 0.0)
    if not present.values:
        return (present.absence(),) * 3
    if variant == ORACLE:
        return ("reference",) * 3
    oracles = run.by_seed(TOFU, TOFU, ORACLE)
    if not oracles:
        return ("no oracle",) * 3
    compared = {
        seed: compare_results(result, oracle)
        for seed, result in run.by_seed(TOFU, TOFU, variant).items()
        if (oracle := oracle_of(result, oracles))
    }

    def seeds(read: Callable[[OracleComparison], float | None]) -> Seeds:
        values = {seed: read(found) for seed, found in compared.items()}
        return Seeds(values, present.tried, present.failed, present.mixed)

    return (
        seeds(lambda found: found.leak.absolute).text(2),
        seeds(lambda found: found.leak.signed).text(2),
        _p_values(seeds(lambda found: found.quality.p_value)),
    )


def _p_values(found: Seeds) -> str:
    """Return the median and the range: p-values of different magnitude have no useful mean."""
    numbers = found.numbers
    if not numbers:
        return found.absence()
    ends = f" ({min(numbers):.2g} to {max(numbers):.2g})" if len(numbers) > 1 else ""
    return f"{median(numbers):.2g}{ends}{found.remark()}"


def _paper_cells(variant: str) -> list[str]:
    numbers = tofu_table().get(variant)
    if numbers is None:
        return [""] * len(_PAPER_COLUMNS)
    return [f"{numbers[name]:.{digits}f}" for _, name, digits in _PAPER_COLUMNS]
