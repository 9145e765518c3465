"""Does what was forgotten stay forgotten? Every attack beside the plain figure and the control.

An attack runs on exactly what an export ships: the mask folded into the weights. The control is
the same attack on the untouched model. Forgotten items are measured, the first two requests aside:
these are what an attacker has in hand, for relearning and for solved examples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tfrnet.errors import InputError
from tfrnet.evaluation.attacks.catalogue import ATTACKS
from tfrnet.evaluation.attacks.recovery import area_between, steps_to_half_recovery
from tfrnet.evaluation.attacks.subject import Attacked, Subject


def check_attacks(names: Sequence[str]) -> None:
    """Raise if an attack is unknown."""
    unknown = [name for name in names if name not in ATTACKS]
    if unknown or not names:
        raise InputError(
            f"unknown attack {unknown[0] if unknown else ''!r}; there are {', '.join(ATTACKS)}"
        )


def run_attacks(
    subject: Subject, names: Sequence[str], report: Callable[[str], None] | None = None
) -> list[Attacked]:
    """Run the named attacks one after another."""
    check_attacks(names)
    rows: list[Attacked] = []
    for name in names:
        if report:
            report(f"attack: {name}")
        rows += ATTACKS[name](subject)
    return rows


def relearning_figures(rows: Sequence[Attacked]) -> dict[str, Any]:
    """Return the headline of relearning: the area between the curves, steps to half recovery."""
    figures = {}
    for variant in ("forgotten", "benign"):
        points = [
            (int(row.variant.split()[1]), row)
            for row in rows
            if row.attack == "relearn" and row.variant.startswith(f"{variant},")
        ]
        if points:
            unlearned = [(step, row.attacked) for step, row in points]
            untouched = [(step, row.untouched_attacked or 0.0) for step, row in points]
            first = points[0][1]
            figures[variant] = {
                "area_between": area_between(unlearned, untouched),
                "steps_to_half_recovery": steps_to_half_recovery(
                    unlearned, first.plain, first.untouched
                ),
            }
    return figures
