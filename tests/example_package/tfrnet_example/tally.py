"""`tfrnet tally`: how many requests of a state were accepted."""

from __future__ import annotations

from tfrnet.cli import options as opt
from tfrnet.cli.output import Output


def command(state: opt.State = opt.DEFAULT_STATE, as_json: opt.AsJson = False) -> int:
    """Count the requests of a state that were accepted and rejected."""
    # What takes long to import is imported here, so that `tfrnet --help` stays quick.
    from tfrnet.state.store import StateStore

    output = Output(as_json)
    outcomes = [e["outcome"] for e in StateStore.open(state).entries if e["kind"] == "request"]
    counts = {name: outcomes.count(name) for name in ("accepted", "rejected")}
    output.say(f"{counts['accepted']} accepted, {counts['rejected']} rejected")
    output.result("tally", counts)
    return 0
