"""Fill the tables of docs/scale.md from the results of `benchmarks.scale`.

python -m benchmarks.scale_document
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.scale_case import ALL_CHANNELS, METHOD_LENGTH
from benchmarks.scale_results import Record
from benchmarks.scale_shapes import SHAPES
from tfrnet.experiments.document import fill_document
from tfrnet.experiments.tables.table import Table

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "scale-h200.json"
DOCUMENT = ROOT / "docs" / "scale.md"
_COLUMNS = (
    "Method",
    "Steps",
    "Seconds a request",
    "Floor",
    "Scoring, share of rate",
    "Peak / weights",
    "State (MB)",
)


def main() -> None:
    cases = json.loads(RESULTS.read_text())["cases"]
    DOCUMENT.write_text(fill_document(DOCUMENT.read_text(), method_tables(cases)))


def method_tables(cases: Sequence[Record]) -> list[Table]:
    """Return all methods on each shape, at the length and on the channels that all share."""
    tables = []
    for shape in SHAPES:
        wanted = {"shape": shape, "length": METHOD_LENGTH, "channels": ALL_CHANNELS}
        rows = [_row(record) for record in cases if wanted.items() <= record["case"].items()]
        tables.append(Table(f"scale-{shape}", f"One request on the {shape} shape", _COLUMNS, rows))
    return tables


def _row(record: Record) -> list[str]:
    method = record["case"]["method"]
    if "error" in record:
        return [method, "", record["error"], "", "", "", ""]
    scoring = record.get("scoring")
    return [
        method,
        f"{record['gradient_steps'] or ''}",
        f"{record['seconds']:.2f}",
        f"{record['floor']['seconds']:.2f}",
        f"{100 * scoring['needed_share_of_rate']:.0f} %" if scoring else "",
        f"{record['peak_over_weights']:.2f}",
        f"{record['state_bytes'] / 1e6:.1f}",
    ]


if __name__ == "__main__":
    main()
