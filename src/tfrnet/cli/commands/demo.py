"""`tfrnet demo`: watch the default model forget."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tfrnet.cli import options as opt
from tfrnet.cli.audit_lines import observed_lines
from tfrnet.cli.opening import DEFAULT_MODEL, load
from tfrnet.cli.output import Output, outcome_line

if TYPE_CHECKING:
    from tfrnet.core.drift import Drift
    from tfrnet.core.outcome import Outcome
    from tfrnet.demo.story import Story

_REQUESTS = 3


def command(
    out: Annotated[Path, typer.Option(help="Folder for the state, data and figure.")] = Path(
        "tfrnet-demo"
    ),
    topic: Annotated[str, typer.Option(help="Topic of the facts to forget.")] = "capitals",
    preset: Annotated[
        str,
        typer.Option(
            help="Settings of the method: default, quick, thorough, deep, paper, fisher or "
            "calibrated."
        ),
    ] = "default",
    as_json: opt.AsJson = False,
) -> int:
    """Watch the default model forget 24 facts in three requests and keep the rest.

    Takes some minutes on two CPU cores, fewer with --preset deep, and downloads nothing. Every
    time it starts over: the state of an earlier demo in the same folder is replaced, unless it has
    had other requests since.
    """
    from tfrnet.core.errors import InputError, InterruptError
    from tfrnet.demo.corpus import load_facts, split

    output = Output(as_json)
    facts = load_facts()
    topics = sorted({fact.topic for fact in facts})
    if topic not in topics:
        raise InputError(f"unknown topic {topic!r}; choose from {', '.join(topics)}")
    parts = split(facts, topic, requests=_REQUESTS)
    if not parts.same_topic:
        raise InputError(
            f"topic {topic!r} has too few facts for the requests; try --topic capitals"
        )
    with output.waiting("starting"):
        from tfrnet.demo.story import (
            Accuracies,
            Listener,
            check_folder,
            prepare_folder,
            quick,
            summary,
            tell,
        )

    config = quick(preset)
    check_folder(out)
    asked = f"{len(parts.forgotten)} about {topic}"
    output.say(f"{len(facts)} facts in {len(topics)} topics; to be forgotten: {asked}")
    loaded = load(DEFAULT_MODEL, "auto", "cpu", output)
    if prepare_folder(out):
        output.note(f"starting over: the state of an earlier demo in {out} is replaced")

    def measured(accuracies: Accuracies) -> None:
        output.say(
            f"ranked right: {accuracies.forgotten:.1f} % of the facts to forget, "
            f"{accuracies.same_topic:.1f} % of others about {topic}, "
            f"{accuracies.others:.1f} % of other topics"
        )

    with output.progress(len(parts.requests), "request", [r.id for r in parts.requests]) as steps:

        def request_done(outcome: Outcome, drift: Drift | None) -> None:
            output.say(outcome_line(outcome))
            for line in observed_lines(replace(outcome, answers=()), drift):
                output.say(line)
            steps.advance()

        listener = Listener(steps.stage, measured, request_done)
        try:
            story = tell(loaded, DEFAULT_MODEL, parts, out, listener, config)
        except KeyboardInterrupt:
            raise InterruptError(
                f"interrupted; the requests applied so far are in {out / 'state'}, and the next "
                "demo starts over"
            ) from None
    _show(story, topic, out, output)
    output.result("demo", {"out": str(out)} | summary(story))
    return 0


def _show(story: Story, topic: str, out: Path, output: Output) -> None:
    from rich.table import Table

    table = Table("facts", "before", "after", "change", title="accuracy (best of four answers)")
    for label, name in (
        ("forgotten", "forgotten"),
        (f"kept, about {topic}", "same_topic"),
        ("kept, other topics", "others"),
    ):
        before, after = getattr(story.before, name), getattr(story.after, name)
        table.add_row(label, f"{before:.1f} %", f"{after:.1f} %", f"{after - before:+.1f}")
    output.table(table)
    for row in story.generations:
        _show_answers(row, output)
    output.say("three of the forgotten facts in other words:")
    for row in story.other_words:
        output.say(f"({row['asked']})")
        _show_answers(row, output)
    if story.drift:
        output.say(f"total drift: {story.drift.words}")
    output.say(f"{story.seconds:.0f} s; state in {out / 'state'}, data in {out}")
    if story.picture:
        output.say(f"figure in {story.picture}")
    else:
        output.note("no figure: matplotlib is not installed (pip install 'tfrnet[plot]')")
    state = out / "state"
    output.say("what to try next:")
    output.say(
        f'  ask it yourself: tfrnet generate --state {state} --prompt "The capital of Italy is"'
    )
    output.say(f"  talk to it: tfrnet chat --state {state}")
    output.say(
        f"  ask in more words: tfrnet audit --state {state} --requests {out / 'requests.jsonl'} "
        f"--retain {out / 'retain.jsonl'}"
    )
    output.say(f"  see it as a page: tfrnet report {state}")
    output.say(f"  take it along: tfrnet export --state {state} --out {out / 'model'}")
    output.say(f"  undo it all: tfrnet rollback --state {state} --to 0")
    output.say("  your own data: tfrnet init")


def _show_answers(row: dict[str, str], output: Output) -> None:
    for name in ("prompt", "before", "after"):
        output.say(f"{name:<7} {' '.join(row[name].split())}")
