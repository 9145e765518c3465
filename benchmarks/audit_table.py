"""The table of docs/audit.md, from the results of benchmarks/audit.py.

python -m benchmarks.audit_table
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfrnet_bench.document import fill_document
from tfrnet_bench.tables.table import Table

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "audit.json"
DOCUMENT = ROOT / "docs" / "audit.md"


def audit_table(result: Mapping[str, Any]) -> Table:
    """Return what the audit of each request took beside the rest of it."""
    rows = [
        (
            f"{row['id']}, {row['facts']} {'fact' if row['facts'] == 1 else 'facts'}",
            f"{row['audit']:.1f} s",
            f"{row['total'] - row['audit']:.1f} s",
            f"{row['ratio']:.2f}{' (missed)' if row['ratio'] > result['bound'] else ''}",
        )
        for row in result["rows"]
    ]
    before, *after = result["load"]
    note = (
        f"{result['machine']}; {result['model']}. The load of the last minute was {before:.1f} "
        f"before, and {min(after):.1f} to {max(after):.1f} after the requests."
    )
    target = f"ratio, at most {result['bound']:g}"
    return Table(
        "audit", "Time of the audit", ("request", "audit", "all the rest", target), rows, note
    )


def main() -> None:
    """Fill in the document."""
    table = audit_table(json.loads(RESULT.read_text()))
    DOCUMENT.write_text(fill_document(DOCUMENT.read_text(), [table]))


if __name__ == "__main__":
    main()
