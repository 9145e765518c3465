"""`tfrnet split`: the data of one stream, the same on every machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tfrnet.cli import options as opt
from tfrnet.cli.output import Output
from tfrnet.core.errors import InputError
from tfrnet.data.tasks import find_task, task_names


def command(
    task: Annotated[str, typer.Option(help=f"Task to forget: {', '.join(task_names())}.")],
    out: Annotated[Path, typer.Option(help="New folder for the split.")],
    seed: Annotated[int, typer.Option(help="Seed of the sample.")] = 0,
    data_dir: opt.DataDir = None,
    source: opt.DataSource = "auto",
    requests: Annotated[int, typer.Option(min=1, help="Number of requests.")] = 20,
    request_size: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Examples per request. A task whose requests are people has its own number.",
            show_default="8",
        ),
    ] = None,
    evaluated: Annotated[
        int,
        typer.Option(
            min=1, help="Items to evaluate: so many of the forgotten ones, and so many held out."
        ),
    ] = 100,
    retain: Annotated[
        int,
        typer.Option(min=1, help="Items of the task to keep, and half as many of each other task."),
    ] = 240,
    guard: Annotated[
        int,
        typer.Option(min=1, help="Guard items of the task, and half as many of each other task."),
    ] = 32,
    groups: Annotated[
        bool,
        typer.Option(
            "--groups",
            help="Let retain and guard lines name their task as their group: the guard then judges "
            "every task for itself.",
        ),
    ] = False,
    as_json: opt.AsJson = False,
) -> int:
    """Draw the requests, retain data, guard data and evaluation items of one stream.

    The items to keep come from the same task and from arithmetic, OpenBookQA and BoolQ, whose data
    is needed too, except for a task that stands alone, such as lume. Writes requests.jsonl,
    retain.jsonl and guard.jsonl for 'tfrnet run', and split.json, a list of rows and digests for
    'tfrnet eval --split'. No held-out item shares a passage, question or pair of operands with an
    item that is forgotten or kept.
    """
    from tfrnet.data.protocol import Sizes, make_split
    from tfrnet.data.sources import Source
    from tfrnet.data.split_files import write_split

    output = Output(as_json)
    own = find_task(task).request_items
    if own and request_size not in (None, own):
        raise InputError(
            f"--request-size {request_size}: a request of {task} has {own} examples, all of one "
            "person or story; leave the option out"
        )
    sizes = Sizes(
        requests=requests,
        request_size=request_size or own or 8,
        forget_eval=evaluated,
        heldout=evaluated,
        retain=(retain, -(-retain // 2)),
        guard=(guard, -(-guard // 2)),
    )
    split = make_split(task, seed, Source(source, data_dir), sizes)
    write_split(split, out, by_task=groups)
    counts = {name: len(items) for name, items in split.parts().items()}
    output.say(f"{out}: {requests} requests of {split.request_size}, task {task}, seed {seed}")
    for name, count in counts.items():
        output.say(f"  {name:<22}{count:>5}")
    output.say(
        f"next: tfrnet run --stream {out}/requests.jsonl --retain {out}/retain.jsonl "
        f"--guard {out}/guard.jsonl"
    )
    output.result("split", {"out": str(out), "task": task, "seed": seed, "parts": counts})
    return 0
