"""`tfrnet run`: apply a stream of requests, going on where an earlier run stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tfrnet.cli import options as opt
from tfrnet.cli.opening import SessionOptions, lead, open_session
from tfrnet.cli.output import Output, outcome_line
from tfrnet.cli.sharing import shared
from tfrnet.core.errors import InterruptError


@shared
def command(
    stream: Annotated[Path, typer.Option(help="JSON Lines of requests, applied in order.")],
    retain: opt.Retain,
    state: opt.State = opt.DEFAULT_STATE,
    model: opt.Model = None,
    guard: opt.Guard = None,
    method: opt.Method = None,
    guarded: opt.Guarded = False,
    preset: opt.Preset = None,
    overrides: opt.Set = None,
    seed: opt.Seed = None,
    dtype: opt.Dtype = "auto",
    device: opt.Device = "auto",
    batch_size: opt.BatchSize = None,
    keep: opt.Keep = None,
    gradient_checkpointing: opt.Checkpointing = False,
    compiled: opt.Compiled = False,
    retry_rejected: Annotated[
        bool, typer.Option("--retry-rejected", help="Try requests again that were rejected.")
    ] = False,
    as_json: opt.AsJson = False,
) -> int:
    """Forget a stream of requests. Stop it at any time; the same command goes on.

    The final state is that of a run that was never stopped: on a CPU bit for bit, on a GPU up to
    the order in which it adds numbers up.
    Exit code 0: all of the stream is applied. 1: some of it was rejected, in this run or an
    earlier one. 2: the input cannot be used.

    'accelerate launch -m tfrnet run ...' shares the work of tfr among processes, with the same
    result.
    """
    output = Output(as_json)
    return lead(
        lambda options: _run(stream, options, retry_rejected, output),
        output,
        device=device,
        state=state,
        model=model,
        retain=retain,
        guard=guard,
        method=method,
        guarded=guarded,
        preset=preset,
        overrides=overrides or [],
        seed=seed,
        dtype=dtype,
        batch_size=batch_size,
        keep=keep,
        gradient_checkpointing=gradient_checkpointing,
        compiled=compiled,
    )


def _run(stream: Path, options: SessionOptions, retry_rejected: bool, output: Output) -> int:
    from tfrnet.data.requests import read_requests

    requests = read_requests(stream)
    outcomes = []
    skipped: list[str] = []
    with (
        open_session(options, requests, output, may_be_done=True) as session,
        output.progress(len(requests), "requests") as steps,
    ):

        def skip(request_id: str) -> None:
            skipped.append(request_id)
            steps.advance()

        try:
            for outcome in session.run(
                requests, retry_rejected, steps.stage, lambda request: skip(request.id)
            ):
                outcomes.append(outcome)
                steps.advance()
                output.say(outcome_line(outcome))
        except KeyboardInterrupt:
            done = sum(r.id in session.store.history.applied for r in requests)
            raise InterruptError(
                f"interrupted: {done} of {len(requests)} requests are applied, the one in "
                "progress left no trace; the same command goes on"
            ) from None
        generation = session.store.generation
        rejected = [r.id for r in requests if r.id in session.store.history.rejected]
    accepted = sum(outcome.accepted for outcome in outcomes)
    if skipped:
        output.say(f"{len(skipped)} of {len(requests)} requests were done before")
    output.say(
        f"state {options.state}: generation {generation}, {accepted} accepted and "
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
            "outcomes": [outcome.to_dict() for outcome in outcomes],
            "skipped": skipped,
            "rejected": rejected,
        },
    )
    return 1 if rejected else 0
