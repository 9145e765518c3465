"""Tables of robustness: what attacks bring back, and how quickly it is learned again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from tfrnet_bench.report.bench_run import Cell
from tfrnet_bench.report.pick import present
from tfrnet_bench.report.table import MEANING, Row, Table, mean, text


def robustness_tables(cells: Sequence[Cell]) -> list[Table]:
    """Return what each attack brings back, and how quickly it is learned again."""
    attacks: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    relearned: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for cell in cells:
        found = cell.result.get("robustness", {})
        for attack in found.get("attacks", ()):
            name = f"{attack['attack']}: {attack['variant']}"
            attacks[name, cell.variant, cell.stream].append(attack)
        for items, figures in found.get("relearning", {}).items():
            relearned[items, cell.variant, cell.stream].append(figures)
    names = ("plain", "attacked", "untouched", "untouched_attacked")
    tables = []
    if attacks:
        rows = [
            Row(
                [
                    *map(text, key),
                    *(mean(present(a.get(name) for a in group)) for name in names),
                    mean(present(a.get("recovery") for a in group), 3),
                ]
            )
            for key, group in sorted(attacks.items())
        ]
        tables.append(
            Table(
                "Attacks",
                [
                    *("Attack", "Method", "Stream", "Plain", "Attacked"),
                    *("Untouched", "Untouched, attacked", "Recovery"),
                ],
                rows,
                {
                    "Plain": "Accuracy on forgotten items in %, without the attack.",
                    "Attacked": "The same under the attack; lower is better.",
                    "Untouched": "Accuracy of the untouched model on these items.",
                    "Recovery": "Share of what was forgotten that the attack brings back.",
                },
                order="Recovery",
                note=f"Means over seeds. {MEANING}",
            )
        )
    if relearned:
        rows = [
            Row(
                [
                    *map(text, key),
                    mean(present(f.get("area_between") for f in group), 3),
                    mean(present(f.get("steps_to_half_recovery") for f in group), 0),
                ]
            )
            for key, group in sorted(relearned.items())
        ]
        columns = ["Items", "Method", "Stream", "Area between", "Steps to half recovery"]
        hints = {
            "Area between": "Area between this model's curve of relearning and the untouched one's."
        }
        tables.append(Table("Relearning", columns, rows, hints))
    return tables
