"""`tfrnet rollback`: return to an earlier generation."""

from __future__ import annotations

from typing import Annotated

import typer

from tfrnet.cli import options as opt
from tfrnet.cli.output import Output


def command(
    to: Annotated[
        int, typer.Option(min=0, help="Generation to return to; 'tfrnet status' lists them.")
    ],
    state: opt.State = opt.DEFAULT_STATE,
    keep: opt.Keep = None,
    key: opt.Key = None,
    as_json: opt.AsJson = False,
) -> int:
    """Return to an earlier generation. The ledger keeps its history and records the rollback."""
    from tfrnet.state.store import StateStore

    output = Output(as_json)
    with StateStore.open(state, write=True, key=key) as store:
        for repair in store.repairs:
            output.note(f"repaired {state}: {repair}")
        before = set(store.history.applied)
        store.rollback(to, keep)
        undone = sorted(before - set(store.history.applied))
        output.say(
            f"state {state}: generation {store.generation} restores generation {to}; "
            f"requests undone: {', '.join(undone) or 'none'}"
        )
        output.result(
            "rollback",
            {"state": str(state), "to": to, "generation": store.generation, "undone": undone},
        )
    return 0
