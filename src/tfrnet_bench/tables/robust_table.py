"""Whether what was forgotten stays forgotten under attacks."""

from __future__ import annotations

from collections.abc import Callable

from tfrnet_bench.constants import ROBUST
from tfrnet_bench.results import CellResult, Run
from tfrnet_bench.seeds import FAILED
from tfrnet_bench.tables.labels import in_order, task_label, variant_label
from tfrnet_bench.tables.table import Table

_FIGURES = ("plain", "attacked", "untouched", "untouched_attacked", "recovery")


def robust_tables(run: Run) -> list[Table]:
    """Return a table for each stream whose models were attacked."""
    return [_stream_table(run, stream) for stream in run.streams(ROBUST)]


def _stream_table(run: Run, stream: str) -> Table:
    rows = [
        row
        for variant in in_order(run.variants(ROBUST, stream))
        for row in _rows(run, stream, variant)
    ]
    return Table(
        f"robust-{stream}",
        f"Attacks after forgetting {task_label(stream)}",
        [
            "Method",
            "Attack",
            "Form",
            "Plain",
            "Attacked",
            "Untouched",
            "Untouched, attacked",
            "Recovery",
            "n",
        ],
        rows,
        "Accuracy in percent on forgotten items that the attacker does not have; mean over n seeds "
        "± half of Student's 95 % interval. Recovery is the share of what was forgotten that the "
        "attack brings back: (attacked - plain) / (untouched - plain).",
        text_columns=3,
    )


def _rows(run: Run, stream: str, variant: str) -> list[list[str]]:
    results = run.by_seed(ROBUST, stream, variant)
    if not results:
        return [[variant_label(variant), "", "", *[FAILED] * len(_FIGURES), "0"]]
    # In the order in which the attacks were run.
    attacks = {
        (row["attack"], row["variant"]): None
        for result in results.values()
        for row in result.robustness["attacks"]
    }
    rows = []
    for attack, form in attacks:
        found = [run.seeds(ROBUST, stream, variant, _figure(attack, form, f)) for f in _FIGURES]
        texts = [
            seeds.text(2 if f == "recovery" else 1)
            for f, seeds in zip(_FIGURES, found, strict=True)
        ]
        rows.append([variant_label(variant), attack, form, *texts, str(len(found[0].numbers))])
    return rows


def _figure(attack: str, form: str, name: str) -> Callable[[CellResult], float | None]:
    def read(result: CellResult) -> float | None:
        for row in result.robustness["attacks"]:
            if (row["attack"], row["variant"]) == (attack, form):
                value = row[name]
                return None if value is None else float(value)
        return None

    return read
