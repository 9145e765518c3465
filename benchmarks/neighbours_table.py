"""The tables of notebook/neighbours.md, from the cells of benchmarks.calibrated.

python -m benchmarks.neighbours_table
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

Row = Mapping[str, Any]

CELLS = Path(__file__).parent / "results" / "research" / "neighbours.jsonl"
_DEMO = "demo:"
# The default ran under two names.
_DEFAULT = {"d": "default", "d11": "default", "d12": "`calibrated`"}
_LAST = 4


def read_cells() -> list[Row]:
    """Return the committed cells."""
    return [json.loads(line) for line in CELLS.read_text().splitlines()]


def streams_table(rows: Sequence[Row]) -> str:
    """Return a line per cell of a stream."""
    lines = []
    for row in rows:
        if "honest" not in row:
            continue
        cells = (
            *(row["round"], name_of(row), f"{row['task']} {row['seed']}"),
            f"{row['honest']:.1f} ({row['forgetting']:.0f}, {row['keeping']:.0f})",
            *(f"{row['not_yet']:.0f}", f"{row['nats_after']:.1f}", f"x{row['fresh_ratio']:.2f}"),
            f"x{row['guard_last'] / row['guard_first']:.2f}",
            *(f"{row['accepted']} of {row['requests']}", f"{row['request_seconds']:.1f}"),
        )
        lines.append(cells)
    head = "round, variant, stream, H, not yet, nats, fresh, guard, accepted, s"
    return _table(head, lines)


def facts_table(rows: Sequence[Row]) -> str:
    """Return a line per cell of the demo's facts, after the last request."""
    lines = []
    for row in rows:
        if not row["task"].startswith(_DEMO):
            continue
        last = row["points"][-1]
        cells = (
            *(row["round"], name_of(row), f"{row['task'].removeprefix(_DEMO)} {row['seed']}"),
            *(f"{last[name]:.1f}" for name in ("forgotten", "same_topic", "others")),
            f"{last['forgotten_nats']:.1f}",
            f"x{last['fluency']['perplexity_ratio']:.2f}",
            *(f"{row['accepted']} of {row['requests']}", f"{row['request_seconds']:.1f}"),
        )
        lines.append(cells)
    head = "round, variant, facts, forgotten, same topic, others, nats, fluency, accepted, s"
    return _table(head, lines)


def means_table(rows: Sequence[Row]) -> str:
    """Return the means over the sets of facts that the variants of the last round have all seen."""
    last = [row for row in rows if row["round"] == _LAST and row["task"].startswith(_DEMO)]
    chosen = [row for row in last if name_of(row) != "default"]
    seen = {(row["task"], row["seed"]) for row in chosen}
    chosen += [
        row for row in rows if name_of(row) == "default" and (row["task"], row["seed"]) in seen
    ]
    lines = []
    for name in dict.fromkeys(map(name_of, chosen)):
        own = [row for row in chosen if name_of(row) == name]
        ends = [row["points"][-1] for row in own]
        cells = (
            *(name, len(own)),
            *(f"{mean(ends, key):.1f} %" for key in ("forgotten", "same_topic", "others")),
            f"{mean(ends, 'forgotten_nats'):.1f}",
            f"x{fmean(end['fluency']['perplexity_ratio'] for end in ends):.2f}",
            f"{mean(own, 'request_seconds'):.1f}",
        )
        lines.append(cells)
    return _table("variant, sets, forgotten, same topic, others, nats, fluency, s", lines)


def _table(head: str, lines: Sequence[Sequence[object]]) -> str:
    titles = head.split(", ")
    rows = [titles, ["---"] * len(titles), *lines]
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)


def name_of(row: Row) -> str:
    """Return the name of a cell's variant."""
    return _DEFAULT.get(row["candidate"], row["candidate"])


def mean(rows: Sequence[Row], name: str) -> float:
    """Return the mean of one figure."""
    return fmean(row[name] for row in rows)


if __name__ == "__main__":
    cells = read_cells()
    print(means_table(cells), streams_table(cells), facts_table(cells), sep="\n\n")
