"""Whether forgotten items stay forgotten under attack, compared with no attack and a control.

An attack runs on exactly what an export contains: the method's effect folded into the weights. The
control is the same attack on the untouched model. All forgotten items are measured except those of
the first two requests, which the attacker has for relearning and as solved examples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tfrnet.core.effect import Effect
from tfrnet.core.errors import InputError
from tfrnet.evaluation.attacking.attack import ATTACKS, all_attacks
from tfrnet.evaluation.attacking.recovery import area_between, steps_to_half_recovery
from tfrnet.evaluation.attacking.subject import Attacked, Subject


def attack_names(effect: Effect) -> tuple[str, ...]:
    """Return the attacks that apply to an effect, without those that have to be asked for."""
    return attacks_that_fit(effect.has_mask)


def attacks_that_fit(has_mask: bool) -> tuple[str, ...]:
    """Return the attacks that apply to a method with or without a mask, unless on request."""
    fitting = (attack for attack in all_attacks() if has_mask or not attack.needs_mask)
    return tuple(attack.name for attack in fitting if not attack.on_request)


def check_attacks(names: Sequence[str], has_mask: bool = True) -> None:
    """Raise if an attack is unknown, cannot run here, or needs a mask and there is none."""
    if not names:
        raise InputError(f"--attacks names no attack; choose from {', '.join(ATTACKS.names())}")
    for name in names:
        attack = ATTACKS.find(name)
        attack.refuse()
        if attack.needs_mask and not has_mask:
            raise InputError(
                f"attack {name} needs a mask, and the state's method has none; "
                f"choose from {', '.join(attacks_that_fit(has_mask))}"
            )


def run_attacks(
    subject: Subject, names: Sequence[str], report: Callable[[str], None] | None = None
) -> list[Attacked]:
    """Run the named attacks one after another."""
    check_attacks(names, subject.effect.has_mask)
    rows: list[Attacked] = []
    for name in names:
        if report:
            report(f"attack: {name}")
        rows += ATTACKS.find(name).run(subject)
    return rows


def relearning_figures(rows: Sequence[Attacked]) -> dict[str, Any]:
    """Return the main figures of relearning: area between the curves, steps to half recovery."""
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
