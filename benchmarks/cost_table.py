"""The tables of notebook/cost.md, from the cells of benchmarks.calibrated.

python -m benchmarks.cost_table
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from statistics import fmean

from benchmarks.default_table import FOLDER, STREAMS, Row, of, read_cells
from benchmarks.neighbours_table import facts_means, table

VARIANTS = ("d", "k1", "k2", "k3", "k4")
TOFU = "tofu-given"
# How many retain examples each variant held in a request on TOFU.
_HELD = {"t480h0": 480, "t1500": 1500, "t3000": 3000}
_REQUESTS = 5
_STAGES = {
    "levels": ("levels", "siblings"),
    "gradients": ("score",),
    "other answers": ("rivals",),
    "forget gradients": ("margins",),
    "solver": ("solve",),
    "guard": ("guard",),
    "retain losses": ("retain_loss",),
}
_LARGE = {
    "tfr-default": "the default, one step",
    "graddiff-lora": "GradDiff with LoRA, ten steps",
}


def streams_table(rows: Sequence[Row]) -> str:
    """Return a line for each stream and variant, with one tuning seed after the other."""
    lines = []
    for stream in STREAMS:
        for name in VARIANTS:
            own = of(rows, name, stream)
            lines.append(
                (
                    *(stream, name, by_seed(own, "seed", "{}"), by_seed(own, "honest", "{:.1f}")),
                    *(by_seed(own, "forgetting", "{:.0f}"), by_seed(own, "keeping", "{:.0f}")),
                    *(by_seed(own, "not_yet", "{:.0f}"), by_seed(own, "fresh_ratio", "x{:.2f}")),
                )
            )
    return table("stream, variant, seeds, H, forgotten, kept, not yet, fresh", lines)


def facts_table(rows: Sequence[Row]) -> str:
    """Return the means over six sets of facts."""
    facts = [row for row in rows if row["task"].startswith("demo:")]
    return facts_means({n: [r for r in facts if r["candidate"] == n] for n in VARIANTS})


def rows_table(rows: Sequence[Row]) -> str:
    """Return what TOFU's fresh examples lose in five requests, by how much is held in each."""
    known: Mapping[str, Row] = {row["candidate"]: row for row in rows if row["task"] == TOFU}
    lines = []
    for name, held in _HELD.items():
        row = known[name]
        before, after = row["fresh_loss"][:2]
        lines.append(
            (
                held,
                f"{fmean(row['forget_loss_after'][:_REQUESTS]):.1f}",
                f"{before:.3f}",
                f"{after:.3f}",
            )
        )
    return table("held a request, forgotten answers nats, fresh before, fresh after", lines)


def stages_table(rows: Sequence[Row]) -> str:
    """Return the seconds of each request of the demo, by stage."""
    lines = []
    for row in rows:
        stages = row["seconds_by_stage"]
        shown = [sum(stages.get(name, 0.0) for name in names) for names in _STAGES.values()]
        lines.append(
            (
                *(row["variant"], row["request"], row["steps"]),
                *(f"{each:.1f}" for each in (*shown, row["seconds"])),
            )
        )
    return table(", ".join(("", "request", "steps", *_STAGES, "all")), lines)


def large_table(rows: Sequence[Row]) -> str:
    """Return what a request costs at 7B: the seconds of both runs, and the peak of memory."""
    lines = [
        (
            _LARGE[row["method"]],
            ", ".join(f"{each:.1f}" for each in row["seconds_of_runs"]),
            f"{row['peak_over_weights']:.2f}",
        )
        for row in rows
    ]
    return table("method, seconds, peak / weights", lines)


def by_seed(rows: Sequence[Row], name: str, form: str) -> str:
    """Return one figure of each cell, as text."""
    return ", ".join(form.format(row[name]) for row in rows)


def read_rows(name: str) -> list[Row]:
    """Return committed measurements of time."""
    found: list[Row] = json.loads((FOLDER.parent / f"{name}.json").read_text())
    return found


def cells() -> list[Row]:
    """Return the cells of the page; those of the default on OpenBookQA were there before."""
    before = [
        {**row, "candidate": "d"}
        for row in of(read_cells("wrong-answers"), "median", "openbookqa")
        if row["seed"] in {cell["seed"] for cell in read_cells("cost")}
    ]
    return [*read_cells("cost"), *before]


if __name__ == "__main__":
    print(
        stages_table(read_rows("demo-requests")),
        streams_table(cells()),
        facts_table(cells()),
        rows_table([*read_cells("limits"), *cells()]),
        large_table(read_rows("default-7b")),
        sep="\n\n",
    )
