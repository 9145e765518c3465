"""`tfrnet prune`: remove old generations."""

from __future__ import annotations

from typing import Annotated

import typer

from tfrnet.cli import options as opt
from tfrnet.cli.output import Output, ranges


def command(
    keep: Annotated[int, typer.Option(min=1, help="Generations to keep, besides the first.")],
    state: opt.State = opt.DEFAULT_STATE,
    key: opt.Key = None,
    as_json: opt.AsJson = False,
) -> int:
    """Remove the files of old generations to free their space.

    The first and the newest ones stay, and so does every line of the ledger. What is removed can
    no longer be rolled back to.
    """
    from tfrnet.state.store import StateStore

    output = Output(as_json)
    with StateStore.open(state, write=True, key=key) as store:
        for repair in store.repairs:
            output.note(f"repaired {state}: {repair}")
        removed = store.prune(keep)
        kept = store.layout.numbers()
    which = f" ({ranges(removed)})" if removed else ""
    output.say(f"state {state}: {len(removed)} generations removed{which}, kept: {ranges(kept)}")
    output.result("prune", {"state": str(state), "removed": removed, "kept": kept})
    return 0
