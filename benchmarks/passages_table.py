"""The tables of notebook/passages.md, from what benchmarks.passages and passage_contexts wrote.

python -m benchmarks.passages_table
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import Any

from tfrnet_bench.document import fill_document
from tfrnet_bench.tables.table import Table

Row = dict[str, Any]
ROOT = Path(__file__).parent
LINES = ROOT / "results" / "passages" / "runs.jsonl"
CONTEXTS = ROOT / "results" / "passages" / "contexts.json"
PAGE = ROOT / "notebook" / "passages.md"
_NAMES = {
    "default": "**TFR-Net (default)**",
    "before": "TFR-Net before",
    "deep": "TFR-Net, `--preset deep`",
    "simnpo": "SimNPO",
    "npo": "NPO",
}
_TEXTS = {
    "everyday": "everyday sentences, written for this project",
    "unknown": "passages that the model does not know",
    "known": "passages that it knows",
}


def passage_tables() -> list[Table]:
    """Return what became of the passages, with and without some to keep, and how they are known."""
    return [
        _table("given", "With five passages in the retain data", False),
        _table("facts", "With facts alone in the retain data", True),
        _context_table(),
    ]


def rows_of(name: str, facts_only: bool = False) -> list[Row]:
    """Return the lines of one method, by seed."""
    lines = LINES.read_text(encoding="utf-8").splitlines()
    found = [row for row in map(json.loads, lines) if row["name"] == name]
    return sorted((r for r in found if r["facts_only"] == facts_only), key=lambda r: int(r["seed"]))


def mean_of(rows: Sequence[Row], when: str, measure: str, *kinds: str) -> float:
    """Return a mean over seeds, of passages of some sets, of their tokens."""
    return fmean(
        fmean(fmean(row[when][name][measure]) for kind in kinds for name in row["sets"][kind])
        for row in rows
    )


def _table(name: str, title: str, facts_only: bool) -> Table:
    sets = [("kept", "fresh")] if facts_only else [("kept",), ("fresh",)]
    lines = []
    for method, label in _NAMES.items():
        if not (rows := rows_of(method, facts_only)):
            continue
        if not lines:
            lines.append(["*untouched*", *_losses(rows, "before", sets), *[""] * 3])
        facts = [fmean(row["facts"][place] for row in rows) for place in (0, 1)]
        lines.append(
            [
                label,
                *_losses(rows, "after", sets),
                f"x{facts[1] / facts[0]:.2f}",
                f"x{geometric_mean(row['fluency']['perplexity_ratio'] for row in rows):.1f}",
                f"{sum(row['accepted'] for row in rows)} of {4 * len(rows)}",
            ]
        )
    columns = ["Method", "Forgotten", "First choice %"]
    columns += [] if facts_only else ["To keep"]
    columns += ["Nobody named", "Not known", "Facts", "Fluency", "Accepted"]
    return Table(name, title, columns, lines)


def _losses(rows: Sequence[Row], when: str, sets: Sequence[Sequence[str]]) -> list[str]:
    first = 100 * mean_of(rows, when, "first", "forgotten")
    others = [mean_of(rows, when, "losses", *kinds) for kinds in [*sets, ("unknown",)]]
    nats = f"{mean_of(rows, when, 'losses', 'forgotten'):.1f}"
    return [nats, f"{first:.0f}", *(f"{each:.1f}" for each in others)]


def _context_table() -> Table:
    found = json.loads(CONTEXTS.read_text(encoding="utf-8"))
    rows = []
    for name, label in _TEXTS.items():
        own = found[name]
        nats = [f"{own[each]:.2f}" for each in ("whole", "in_view")]
        ratio, share = own["whole"] / own["in_view"], 100 * own["by_heart"]
        rows.append([f"{own['texts']} {label}", *nats, f"{ratio:.2f}", f"{share:.0f}"])
    columns = ["Texts", "All before it", "Two tokens before it", "Ratio", "By heart %"]
    return Table("contexts", "Nats a token, by what is in view", columns, rows)


if __name__ == "__main__":
    PAGE.write_text(fill_document(PAGE.read_text(), passage_tables()))
