"""The tables of notebook/witness.md, from the cells of benchmarks.calibrated on reporting seeds.

python -m benchmarks.witness_table
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from benchmarks.default_table import (
    STREAMS,
    Row,
    lost_accuracy,
    mean,
    of,
    oracle_table,
    read_cells,
    tofu_table,
)
from benchmarks.neighbours_table import facts_means, table

HELD, DEFAULT, OWN_TEXT = "default", "h0", "own"


def streams_table(rows: Sequence[Row], held: Sequence[Row]) -> str:
    """Return lines for each stream: the guard held, not held, and without retain data."""
    lines = []
    for stream in STREAMS:
        for name, own in (
            ("held", of(held, HELD, stream)),
            ("not held", of(rows, DEFAULT, stream)),
            ("no retain data", of(rows, OWN_TEXT, stream)),
        ):
            rises = [row["guard_last"] / row["guard_first"] for row in own]
            lines.append(
                (
                    *(stream, name, ", ".join(str(row["seed"]) for row in own)),
                    f"{fmean(row['honest'] for row in own):.1f} "
                    f"({mean(own, 'forgetting')}, {mean(own, 'keeping')})",
                    mean(own, "not_yet"),
                    f"{fmean(map(lost_accuracy, own)):+.1f}",
                    f"x{fmean(row['fresh_ratio'] for row in own):.2f}",
                    f"x{fmean(rises):.2f}",
                    f"x{max(rises):.2f}",
                    f"{fmean(row['nats_after'] for row in own):.1f}",
                )
            )
    return table("stream, guard, seeds, H, not yet, R, fresh, guard loss, largest, nats", lines)


def topics_table(rows: Sequence[Row], held: Sequence[Row]) -> str:
    """Return the means over topics of the demo's facts, after the last request."""
    chosen = {"held": (held, HELD), "not held": (rows, DEFAULT)}
    return facts_means(
        {
            name: [r for r in cells if r["task"].startswith("demo:") and r["candidate"] == variant]
            for name, (cells, variant) in chosen.items()
        }
    )


if __name__ == "__main__":
    cells, before = read_cells("witness"), read_cells()
    print(
        streams_table(cells, before),
        oracle_table(cells, read_cells("default-oracle"), (DEFAULT,)),
        topics_table(cells, before),
        tofu_table(cells, DEFAULT),
        sep="\n\n",
    )
