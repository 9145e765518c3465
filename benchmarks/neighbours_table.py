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
# What was the default then ran under several names.
_NAMES = {"d": "deep", "d11": "deep", "default": "deep", "d12": "`calibrated`"}
_LAST = (4, 5)


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
    return table(head, lines)


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
    return table(head, lines)


def means_table(rows: Sequence[Row]) -> str:
    """Return the means over the sets of facts, of variants that have seen all of them."""
    last = [row for row in rows if row["round"] in _LAST and row["task"].startswith(_DEMO)]
    sets = {(row["task"], row["seed"]) for row in last}
    last += [
        row
        for row in rows
        if row["round"] not in _LAST
        and name_of(row) == "deep"
        and (row["task"], row["seed"]) in sets
    ]
    names = dict.fromkeys(map(name_of, last))
    variants = {name: [row for row in last if name_of(row) == name] for name in names}
    return facts_means({name: own for name, own in variants.items() if len(own) == len(sets)})


def facts_means(variants: Mapping[str, Sequence[Row]]) -> str:
    """Return a line per variant: means over its cells of facts, after the last request."""
    lines = []
    for name, own in variants.items():
        ends = [row["points"][-1] for row in own]
        cells = (
            *(name, len(own)),
            *(f"{mean(ends, key):.1f} %" for key in ("forgotten", "same_topic", "others")),
            f"{mean(ends, 'forgotten_nats'):.1f}",
            f"x{fmean(end['fluency']['perplexity_ratio'] for end in ends):.2f}",
            f"{mean(own, 'request_seconds'):.1f}",
        )
        lines.append(cells)
    return table("variant, sets, forgotten, same topic, others, nats, fluency, s", lines)


def table(head: str, lines: Sequence[Sequence[object]]) -> str:
    """Return a table in Markdown; titles are separated by commas."""
    titles = head.split(", ")
    rows = [titles, ["---"] * len(titles), *lines]
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)


def name_of(row: Row) -> str:
    """Return the name of a cell's variant."""
    return _NAMES.get(row["candidate"], row["candidate"])


def mean(rows: Sequence[Row], name: str) -> float:
    """Return the mean of one figure."""
    return fmean(row[name] for row in rows)


if __name__ == "__main__":
    cells = read_cells()
    print(means_table(cells), streams_table(cells), facts_table(cells), sep="\n\n")
