"""The paper's score and the honest ones side by side, averaged over all streams of a run."""

from __future__ import annotations

from tfrnet.evaluation.yardsticks import YARDSTICKS
from tfrnet_bench.constants import STREAM
from tfrnet_bench.honest import measured
from tfrnet_bench.results import Run
from tfrnet_bench.seeds import Seeds, combine
from tfrnet_bench.tables.labels import variant_label
from tfrnet_bench.tables.main_table import main_variants
from tfrnet_bench.tables.table import Table

_DASH = "-"


def yardstick_tables(run: Run) -> list[Table]:
    """Return one table; a measure that no cell has is a dash."""
    if not run.of_kind(STREAM):
        return []
    rows = [
        [variant_label(variant), *(_entry(run, variant, name) for name in YARDSTICKS)]
        for variant in main_variants(run)
    ]
    hints = {yardstick.title: yardstick.meaning for yardstick in YARDSTICKS.values()}
    meanings = " ".join(f"{title}: {meaning}" for title, meaning in hints.items())
    return [
        Table(
            "yardsticks",
            "The paper's score and what it cannot show",
            ["Method", *hints],
            rows,
            "Means over streams and seeds ± half of Student's 95 % interval; a dash was not "
            f"measured. {meanings}",
            hints=hints,
        )
    ]


def _entry(run: Run, variant: str, name: str) -> str:
    found = combine(_by_stream(run, variant, name))
    if not found.numbers:
        return _DASH
    return found.text(YARDSTICKS[name].digits)


def _by_stream(run: Run, variant: str, name: str) -> list[Seeds]:
    return [measured(run, stream, variant, name) for stream in run.averaged_streams]
