"""`tfrnet run`: apply a stream of requests, or the rest of it after an interruption."""

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
from tfrnet.data.requests import read_requests

if TYPE_CHECKING:
    from tfrnet.cli.material import Material
    from tfrnet.core.team import Team


@shared
@opt.takes_session_options
def command(
    stream: Annotated[
        Path,
        typer.Option(
            # Other commands call it --requests.
            "--stream",
            "--requests",
            help="JSON Lines file of requests, applied in order.",
        ),
    ],
    options: opt.SessionOptions,
    retry_rejected: Annotated[
        bool, typer.Option("--retry-rejected", help="Try rejected requests again.")
    ] = False,
    full: opt.Full = False,
    as_json: opt.AsJson = False,
) -> int:
    """Forget a stream of requests, one after another.

    You can stop at any time. Run the same command again to apply the remaining requests; the final
    state is the same as without the interruption (on a GPU up to rounding).

    Exit code 0: every request of the stream is applied. 1: some were rejected, in this run or an
    earlier one. 2: invalid input.

    Progress goes to stderr: a bar on a terminal, a line at least every ten seconds in a pipe
    (TFRNET_QUIET=1 for none).

    'accelerate launch -m tfrnet run ...' spreads the work of tfr over several processes, with the
    same result.
    """
    output = Output(as_json)
    return lead(
        lambda: read_requests(stream),
        lambda own, team, given: _run(own, team, given, retry_rejected, full, output),
        options,
        output,
    )


def _run(
    options: opt.SessionOptions,
    team: Team,
    given: Material,
    retry_rejected: bool,
    full: bool,
    output: Output,
) -> int:
    requests = given.requests
    outcomes = []
    skipped: list[str] = []
    with (
        open_session(options, team, given, output, may_be_done=True) as session,
        output.progress(
            len(requests), "request", [r.id for r in requests], earlier_seconds(session)
        ) as steps,
    ):

        def skip(request_id: str) -> None:
            skipped.append(request_id)
            steps.skip()

        try:
            for outcome in session.run(
                requests, retry_rejected, steps.stage, lambda request: skip(request.id)
            ):
                outcomes.append(outcome)
                output.say(outcome_line(outcome))
                drift = session.unlearner.drift(outcome.guard_loss_after)
                for line in observed_lines(outcome, drift):
                    output.say(line)
                steps.advance()
        except KeyboardInterrupt:
            done = sum(r.id in session.store.history.applied for r in requests)
            raise InterruptError(
                f"interrupted: {done} of {len(requests)} requests are applied, the one in "
                "progress changed nothing; run the same command again to apply the rest"
            ) from None
        generation = session.store.generation
        rejected = [r.id for r in requests if r.id in session.store.history.rejected]
    accepted = sum(outcome.accepted for outcome in outcomes)
    if skipped:
        output.say(f"{len(skipped)} of {len(requests)} requests were already done")
    output.say(
        f"state {options.state}: generation {generation}, {accepted} applied and "
        f"{len(outcomes) - accepted} rejected in this run"
    )
    if rejected:
        output.say(
            f"{len(rejected)} of the stream's requests are rejected ({', '.join(rejected[:5])}"
            f"{', ...' if len(rejected) > 5 else ''}); --retry-rejected tries them again"
        )
    output.result(
        "run",
        {
            "state": str(options.state),
            "generation": generation,
            "outcomes": [short_record(outcome.to_dict(), full) for outcome in outcomes],
            "skipped": skipped,
            "rejected": rejected,
        },
    )
    return 1 if rejected else 0
