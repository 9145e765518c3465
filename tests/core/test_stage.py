"""Stages say in which step they are, and what is tried again and why."""

from __future__ import annotations

from tests import tiny
from tfrnet.core.stage import Stage, StepReport
from tfrnet.data.examples import Example
from tfrnet.methods.tfr.model import TFRNet


def test_a_stage_is_a_text_with_its_numbers() -> None:
    stage = Stage("checking the guard", 3, 10)
    assert stage == "step 3 of at most 10: checking the guard"
    assert (stage.step, stage.steps) == (3, 10)


def test_steps_and_further_tries() -> None:
    said: list[str] = []
    report = StepReport(said.append)
    report("scoring")
    report.begin(1, 4)
    report("checking the guard")
    report.again(2, "guard loss would rise")
    report("checking the guard")
    report.begin(2, 4)
    report("scoring")
    report.end()
    report("measuring")
    assert said == [
        "scoring",
        "step 1 of at most 4: checking the guard",
        "step 1 of at most 4: try 2, because guard loss would rise: checking the guard",
        "step 2 of at most 4: scoring",
        "measuring",
    ]


def test_a_request_tells_its_steps_and_why_one_is_tried_again(tokenizer) -> None:
    # A guard of almost the same words, without any tolerance, refuses the first try.
    (request,) = tiny.requests(1)
    guard = [Example(f"So {example.prompt}", example.answer) for example in request.examples]
    config = tiny.deep(retain_examples=4, guard_relative=0.0, hold_guard=False, backtracks=2)
    net = TFRNet(tiny.make_model(), tokenizer, tiny.examples(10), config, guard=guard)
    said: list[str] = []
    net.forget(request, report=said.append)
    assert said[0] == "checking the guard"
    first = next(text for text in said if isinstance(text, Stage))
    assert (first.step, first.steps) == (1, config.steps)
    again = [text for text in said if "try 2, because guard loss would rise from" in text]
    assert again
    assert not isinstance(said[-1], Stage)


def test_each_part_of_what_comes_before_the_steps_has_its_name(tokenizer) -> None:
    (request,) = tiny.requests(1)
    net = TFRNet(tiny.make_model(), tokenizer, tiny.examples(10))
    said: list[str] = []
    net.forget(request, report=said.append)
    assert said[:5] == [
        "comparing with retain examples",
        "writing siblings of the request",
        "finding how likely unknown answers are",
        "checking the retain examples",
        "checking siblings of the request",
    ]
