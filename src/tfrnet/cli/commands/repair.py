"""`tfrnet repair`: save what can be saved of a damaged state."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tfrnet.cli import options as opt
from tfrnet.cli.output import Output
from tfrnet.core.errors import InputError


def command(
    state: opt.State = opt.DEFAULT_STATE,
    yes: Annotated[bool, typer.Option("--yes", help="Repair without asking first.")] = False,
    key: opt.Key = None,
    as_json: opt.AsJson = False,
) -> int:
    """Salvage the newest generation whose digest holds, after saying what is lost.

    Lines of the ledger before the damage stay; a new line records the repair. What is replaced is
    kept in a folder beside the state. An interrupted commit is not damage and needs no repair. If
    you have a backup without the damage, 'tfrnet restore' brings back more.
    """
    from tfrnet.state.repair import opened_for_repair

    output = Output(as_json)
    with opened_for_repair(state, key) as repair:
        plan = repair.plan
        for problem in plan.problems:
            output.say(f"damaged: {problem}")
        for loss in plan.lost:
            output.say(f"lost: {loss}")
        if not plan.problems:
            output.say(f"state {state} is sound; there is nothing to repair")
        elif not plan.lost:
            output.say("nothing is lost")
        values = {
            "state": str(state),
            "damaged": list(plan.problems),
            "lost": list(plan.lost),
            "salvaged": plan.salvaged,
        }
        if plan.problems and not _is_wanted(yes, as_json):
            output.result("repair", values | {"repaired": False, "replaced": None})
            raise InputError("nothing was changed; give --yes to repair the state as described")
        aside = repair.carry_out()
    if aside:
        output.say(
            f"repaired state {state}: generation {plan.salvaged} is current again; what was "
            f"replaced is in {aside}"
        )
    done = {"repaired": aside is not None, "replaced": str(aside) if aside else None}
    output.result("repair", values | done)
    return 0


def _is_wanted(yes: bool, as_json: bool) -> bool:
    """Ask whoever is there; a program has to say so beforehand."""
    return yes or (not as_json and sys.stdin.isatty() and typer.confirm("Repair it like this?"))
