"""`tfrnet forget`: apply one request."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tfrnet.cli import options as opt
from tfrnet.cli.audit_lines import observed_lines
from tfrnet.cli.opening import earlier_seconds, lead, open_session
from tfrnet.cli.output import Output, outcome_line, short_record
from tfrnet.cli.sharing import shared
from tfrnet.core.errors import InterruptError
from tfrnet.data.requests import read_one_request

if TYPE_CHECKING:
    from tfrnet.cli.material import Material
    from tfrnet.core.team import Team


@shared
@opt.takes_session_options
def command(
    request: Annotated[
        Path, typer.Option(help='File with one request: {"id": ..., "examples": [...]}.')
    ],
    options: opt.SessionOptions,
    full: opt.Full = False,
    as_json: opt.AsJson = False,
) -> int:
    """Forget one request and commit the result if the guard accepts it.

    Exit code 0: applied. 1: rejected by the guard or because training diverged; nothing changed.
    2: invalid input.
    """
    output = Output(as_json)
    return lead(
        lambda: [read_one_request(request)],
        lambda own, team, given: _forget(own, team, given, full, output),
        options,
        output,
    )


def _forget(
    options: opt.SessionOptions, team: Team, given: Material, full: bool, output: Output
) -> int:
    (wanted,) = given.requests
    with (
        open_session(options, team, given, output, may_be_done=False) as session,
        output.progress(1, "request", [wanted.id], earlier_seconds(session)) as steps,
    ):
        try:
            outcome = session.forget(wanted, steps.stage)
        except KeyboardInterrupt:
            done = "is" if session.is_applied(wanted) else "was not"
            raise InterruptError(f"interrupted: request {wanted.id!r} {done} applied") from None
        generation = session.store.generation
        drift = session.unlearner.drift(outcome.guard_loss_after)
    output.say(outcome_line(outcome))
    for line in observed_lines(outcome, drift):
        output.say(line)
    record = short_record(outcome.to_dict(), full)
    output.result("forget", {"state": str(options.state), "generation": generation} | record)
    return 0 if outcome.accepted else 1
