"""Print the runs of `benchmarks.research` as the table that notebook/research.md holds.

python -m benchmarks.research_table benchmarks/results/research/solved-steps.jsonl
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from tfrnet.data.protocol import STREAMS
from tfrnet_bench.search.rows import read_rows
from tfrnet_bench.tables.render import markdown_table

Row = Mapping[str, Any]


def research_table(rows: Sequence[Row]) -> str:
    """Return one line per candidate with its figures on every stream that it ran on."""
    head = ["candidate", "changed"]
    for stream in STREAMS:
        head += [f"{stream} T", "seen %", "R", "drift"]
    lines: list[list[str]] = []
    candidates = _by_candidate(rows)
    first: Row = next(iter(candidates.values()))[0]["settings"]
    for name, runs in candidates.items():
        settings = runs[0]["settings"]
        changed = [f"{k}={v}" for k, v in settings.items() if first.get(k) != v]
        changed += [f"no {k}" for k in first if k not in settings]
        line = [name, ", ".join(changed) or "as said above"]
        for stream in STREAMS:
            own = [run for run in runs if run["stream"] == stream]
            line += _figures(own) if own else ["", "", "", ""]
        lines.append(line)
    return markdown_table(head, lines, text_columns=len(head))


def _by_candidate(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["candidate"], []).append(row)
    # The base first, then what differs from it, best first.
    order = sorted(found, key=lambda name: -fmean(run["trade_off"] for run in found[name]))
    order.sort(key=lambda name: name != "base")
    return {name: found[name] for name in order}


def _figures(runs: Sequence[Row]) -> list[str]:
    """Trade-off, accuracy on requested items at the end, kept accuracy, rise of the guard loss."""
    seen = [fmean(run["checkpoints"][-1]["by_request"]) for run in runs]
    return [
        f"{fmean(run['trade_off'] for run in runs):.1f}",
        f"{fmean(seen):.0f}",
        f"{fmean(run['retain'] for run in runs):.1f}",
        f"{fmean(run['drift'] for run in runs):.2f}",
    ]


if __name__ == "__main__":
    print(research_table(read_rows(Path(sys.argv[1]))))
