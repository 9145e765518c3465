"""The page's tables of robustness: what attacks bring back, and how quickly it is relearned."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tfrnet_bench.constants import ROBUST
from tfrnet_bench.report.values import MEANING, mean
from tfrnet_bench.results import Part, Run
from tfrnet_bench.tables.table import Table, Value

# Figures by what they are of, a variant and a stream; one for each seed.
Groups = Mapping[tuple[str, str, str], Sequence[Part]]


def robustness_tables(run: Run) -> list[Table]:
    """Return what each attack brings back, and how quickly it is learned again."""
    attacks: dict[tuple[str, str, str], list[Part]] = defaultdict(list)
    relearned: dict[tuple[str, str, str], list[Part]] = defaultdict(list)
    for result in run.of_kind(ROBUST):
        for attack in result.robustness.get("attacks", ()):
            name = f"{attack['attack']}: {attack['variant']}"
            attacks[name, result.variant, result.stream].append(attack)
        for items, figures in result.robustness.get("relearning", {}).items():
            relearned[items, result.variant, result.stream].append(figures)
    made = [(attacks, _attack_table), (relearned, _relearning_table)]
    return [make(groups) for groups, make in made if groups]


def _attack_table(groups: Groups) -> Table:
    names = ("plain", "attacked", "untouched", "untouched_attacked")
    return Table(
        "attacks",
        "Attacks",
        [
            *("Attack", "Method", "Stream", "Plain", "Attacked"),
            *("Untouched", "Untouched, attacked", "Recovery"),
        ],
        [
            [
                *key,
                *(mean(attack.get(name) for attack in group) for name in names),
                mean((attack.get("recovery") for attack in group), 3),
            ]
            for key, group in sorted(groups.items())
        ],
        note=f"Means over seeds. {MEANING}",
        text_columns=3,
        hints={
            "Plain": "Accuracy on forgotten items in %, without the attack.",
            "Attacked": "The same under the attack; lower is better.",
            "Untouched": "Accuracy of the untouched model on these items.",
            "Recovery": "Share of what was forgotten that the attack brings back.",
        },
        order="Recovery",
    )


def _relearning_table(groups: Groups) -> Table:
    return Table(
        "relearning",
        "Relearning",
        ["Items", "Method", "Stream", "Area between", "Steps to half recovery"],
        [
            [
                *key,
                mean((figures.get("area_between") for figures in group), 3),
                _steps([figures.get("steps_to_half_recovery") for figures in group]),
            ]
            for key, group in sorted(groups.items())
        ],
        text_columns=3,
        hints={
            "Area between": "Area between this model's curve of relearning and the untouched "
            "one's.",
            "Steps to half recovery": "Mean over the seeds that come so far.",
        },
    )


def _steps(by_seed: Sequence[float | None]) -> Value:
    """Return the mean of the seeds that recover half, and how many do."""
    entry, reached = mean(by_seed, 0), sum(steps is not None for steps in by_seed)
    if reached in (0, len(by_seed)):
        return entry
    note = f"{reached} of {len(by_seed)} seeds"
    return replace(entry, note=f"{entry.note}; {note}" if entry.note else note)
