"""The tables of notebook/limits.md, from the cells of benchmarks.calibrated.

python -m benchmarks.limits_table
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from benchmarks.default_table import STREAMS, Row, mean, of, read_cells
from benchmarks.neighbours_table import facts_means, table

_TOFU = "tofu-given"
_ARMS = ("real", "permuted", "retain", "none")


def tofu_table(rows: Sequence[Row]) -> str:
    """Return a line for each variant on TOFU with all of its retain data."""
    lines = []
    for row in rows:
        if row["task"] != _TOFU:
            continue
        forget, retain = (row["sets"][name] for name in ("forget", "retain"))
        lines.append(
            (
                *(row["candidate"], f"{row['accepted']} of {row['requests']}"),
                *(f"{forget['probability']:.2f}", f"{fmean(row['forget_loss_after']):.2f}"),
                *(f"{retain['probability']:.2f}", f"{retain['rouge']:.2f}"),
                *(f"{row['utility']:.2f}", f"{row['privacy']['auc']['loss']['value']:.2f}"),
                *(f"x{row['fresh_ratio']:.1f}", f"x{row['guard_last'] / row['guard_first']:.1f}"),
            )
        )
    head = "variant, accepted, forget p, nats, retain p, ROUGE, utility, AUC of LOSS, fresh, guard"
    return table(head, lines)


def streams_table(rows: Sequence[Row], names: Sequence[str]) -> str:
    """Return a line for each cell of a stream, of some variants."""
    lines = [
        (
            *(row["candidate"], f"{row['task']} {row['seed']}", f"{row['honest']:.1f}"),
            *(f"{row['not_yet']:.0f}", f"{row['seen'][0]:.0f}", f"{came_back(row):+.0f}"),
            *(f"x{row['fresh_ratio']:.2f}", f"x{row['guard_last'] / row['guard_first']:.2f}"),
        )
        for row in rows
        if row["candidate"] in names and "honest" in row
    ]
    return table("variant, stream, H, not yet, right at 5, at 20, fresh, guard", lines)


def facts_table(rows: Sequence[Row]) -> str:
    """Return the means over the sets of facts that both variants ran on."""
    facts = [row for row in rows if row["task"].startswith("demo:")]
    return facts_means({n: [r for r in facts if r["candidate"] == n] for n in ("d64", "h0")})


def arms_table(rows: Sequence[Row]) -> str:
    """Return a line for each arm and stream: means over seeds."""
    lines = []
    for stream in STREAMS:
        for arm in _ARMS:
            if own := of(rows, arm, stream):
                lines.append(
                    (
                        *(stream, arm, f"{fmean(row['honest'] for row in own):.1f}"),
                        *(mean(own, "not_yet"), f"{fmean(map(came_back, own)):+.1f}"),
                        f"x{fmean(row['fresh_ratio'] for row in own):.2f}",
                    )
                )
    return table("stream, which channels may be raised, H, not yet, came back, fresh", lines)


def came_back(row: Row) -> float:
    """Return by how much requests 1 to 5 are right more often after 20 requests than after 5."""
    return fmean(row["checkpoints"][-1]["by_request"][:5]) - float(row["seen"][0])


if __name__ == "__main__":
    cells = read_cells("limits")
    print(
        tofu_table(cells),
        streams_table(cells, ("h0",)),
        facts_table(cells),
        arms_table(cells),
        streams_table(cells, ("m100", "m1000", "r64", "r64m100")),
        sep="\n\n",
    )
