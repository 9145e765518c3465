"""The table of docs/service.md, from the results of benchmarks/serving.py.

python -m benchmarks.serving_table
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.serving import BESIDE, CLIENTS, LAST_OVER_FIRST
from tfrnet_bench.document import fill_document
from tfrnet_bench.tables.table import Table

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "serving.json"
DOCUMENT = ROOT / "docs" / "service.md"


@dataclass(frozen=True)
class Row:
    """A figure, how it is shown, and the least or the most that it should be."""

    label: str
    figure: str
    least: float | None = None
    most: float | None = None
    digits: int = 2

    def cells(self, figures: Mapping[str, float]) -> tuple[str, str, str]:
        """Return the row; a target that does not hold says so."""
        value = figures[self.figure]
        holds = (self.least is None or value >= self.least) and (
            self.most is None or value <= self.most
        )
        target = f"at most {self.most:g}" if self.least is None else f"at least {self.least:g}"
        missed = "" if holds else " (missed)"
        return self.label, f"{value:.{self.digits}f}", target + missed


ROWS = (
    Row("tokens a second, one client, over `generate`", "service / generate, 1", least=0.9),
    Row(
        f"the same, {CLIENTS} clients and batch {CLIENTS}",
        f"service / generate, {CLIENTS}",
        least=0.9,
    ),
    Row(f"{CLIENTS} clients, over one", f"{CLIENTS} clients / 1", least=3),
    Row(f"{CLIENTS} clients beside a request, over without", BESIDE, least=0.4),
    Row(
        "first token, milliseconds after `generate`'s",
        "first token, milliseconds over generate",
        most=50,
        digits=0,
    ),
    Row("sending a request to a full queue, over an empty one", LAST_OVER_FIRST, most=1.5),
    Row("memory of that queue, MB", "memory of the queue, MB", most=50, digits=0),
)


def serving_table(result: Mapping[str, Any]) -> Table:
    """Return what was measured beside what it should be."""
    rows = [row.cells(result["figures"]) for row in ROWS]
    note = (
        f"{result['machine']}; {result['model']}, answers of {result['tokens']} tokens; medians of "
        f"{result['rounds']} rounds; a full queue has {result['queued']} requests."
    )
    return Table("serving", "Speed of the service", ("what", "measured", "target"), rows, note)


def main() -> None:
    """Fill in the document."""
    table = serving_table(json.loads(RESULT.read_text()))
    DOCUMENT.write_text(fill_document(DOCUMENT.read_text(), [table]))


if __name__ == "__main__":
    main()
