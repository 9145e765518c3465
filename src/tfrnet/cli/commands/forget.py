"""`tfrnet forget`: apply one request."""

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
    request: Annotated[
        Path, typer.Option(help='One request: {"id": ..., "examples": [...]} on one line.')
    ],
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
    as_json: opt.AsJson = False,
) -> int:
    """Forget one request by a method, and commit what came of it if the guard agrees.

    Exit code 0: accepted. 1: rejected by the guard, or since training diverged; nothing changed.
    2: the input cannot be used.
    """
    output = Output(as_json)
    return lead(
        lambda options: _forget(request, options, output),
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


def _forget(request: Path, options: SessionOptions, output: Output) -> int:
    from tfrnet.data.requests import read_one_request

    wanted = read_one_request(request)
    with (
        open_session(options, [wanted], output, may_be_done=False) as session,
        output.progress(1, "forgetting") as steps,
    ):
        try:
            outcome = session.forget(wanted, steps.stage)
        except KeyboardInterrupt:
            done = "is" if session.is_applied(wanted) else "was not"
            raise InterruptError(f"interrupted: request {wanted.id!r} {done} applied") from None
        generation = session.store.generation
    output.say(outcome_line(outcome))
    output.result(
        "forget", {"state": str(options.state), "generation": generation} | outcome.to_dict()
    )
    return 0 if outcome.accepted else 1
