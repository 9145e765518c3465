"""`tfrnet verify`: recompute every digest of a state."""

from __future__ import annotations

from tfrnet.cli import options as opt
from tfrnet.cli.output import Output
from tfrnet.core.errors import CheckFailedError


def command(state: opt.State = opt.DEFAULT_STATE, as_json: opt.AsJson = False) -> int:
    """Check a state: recompute the ledger's hash chain and the digest of every kept generation.

    Exit code 0: everything matches. 1: something does not; the output says what.
    """
    from tfrnet.method_state import verify_state

    output = Output(as_json)
    checks = verify_state(state)
    for check in checks:
        mark = "ok    " if check.passed else "FAILED"
        output.say(f"{mark} {check.name}{': ' if check.detail else ''}{check.detail}")
    failed = [check for check in checks if not check.passed]
    output.result(
        "verify",
        {
            "state": str(state),
            "passed": not failed,
            "checks": [vars(check) for check in checks],
        },
    )
    if failed:
        raise CheckFailedError(f"state {state} failed {len(failed)} of {len(checks)} checks")
    return 0
