"""`tfrnet verify`: recompute every digest of a state."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tfrnet.cli import options as opt
from tfrnet.cli.output import Output
from tfrnet.core.errors import CheckFailedError


def command(
    state: opt.State = opt.DEFAULT_STATE,
    head: Annotated[
        Path | None,
        typer.Option(
            help="File with lines that 'tfrnet head' printed and you kept elsewhere; the ledger "
            "must continue each of them.",
            show_default=False,
        ),
    ] = None,
    public_key: opt.PublicKey = None,
    ledger_only: Annotated[
        bool, typer.Option("--ledger-only", help="Skip the generations; quick.")
    ] = False,
    as_json: opt.AsJson = False,
) -> int:
    """Check a state: recompute the ledger's hash chain and the digest of every kept generation.

    Signatures are checked too, if the ledger is signed. On its own this finds accidents. To find
    out whether somebody changed the state on purpose, give what you kept elsewhere: --head,
    --public-key or both.

    Exit code 0: everything matches. 1: something does not; the output says what.
    """
    from tfrnet.core.signing import read_public_key
    from tfrnet.state.evidence import Kept
    from tfrnet.state.head import read_heads

    output = Output(as_json)
    kept = Kept(
        tuple(read_heads(head)) if head else (),
        read_public_key(public_key) if public_key else None,
    )
    if ledger_only:
        from tfrnet.state.verify import verify

        checks = verify(state, None, kept)
    else:
        from tfrnet.method_state import verify_state

        checks = verify_state(state, kept)
    output.checks("verify", {"state": str(state)}, checks)
    if failed := [check for check in checks if not check.passed]:
        if any(check.repairable for check in failed):
            advice = "'tfrnet repair' says what can be saved"
        else:
            # Sound in itself, but not what it should be: there is nothing to salvage.
            advice = (
                "'tfrnet repair' does not help: compare the state with a backup, and the key or "
                "head with the one you kept"
            )
        raise CheckFailedError(
            f"state {state} failed {len(failed)} of {len(checks)} checks; {advice}"
        )
    return 0
