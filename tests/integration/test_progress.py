"""How far a command is: the time left, and lines in a pipe."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
import torch

from tests.integration.commands import FAST, Files, Tfrnet
from tfrnet.cli import progress
from tfrnet.cli.output import Output
from tfrnet.cli.progress import PlainLines, Steps, duration
from tfrnet.core.stage import Stage, passes_heard
from tfrnet.core.team import SOLO


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_time_left_comes_from_the_steps_and_then_from_what_is_done() -> None:
    clock = Clock()
    steps = Steps(3, "request", ["a", "b", "c"], clock)
    steps.stage("scoring")
    assert steps.time_left() is None
    assert steps.where() == "request 1 of 3 (a): scoring"
    clock.now = 2
    steps.stage(Stage("trying", 1, 5))
    assert steps.time_left() is None  # nothing to judge by yet
    clock.now = 6
    steps.stage(Stage("trying", 2, 5))
    # 4 seconds a step, four steps to go: 22 seconds in all, of which 6 are over.
    assert steps.time_left() == pytest.approx(16 + 2 * 22)
    assert steps.times() == "0:06 so far, at most about 1:00 left"
    clock.now = 8  # within a step it becomes less, not more
    assert steps.time_left() == pytest.approx(14 + 2 * 22)
    clock.now = 10
    steps.advance()
    assert steps.time_left() == pytest.approx(2 * 10)
    clock.now = 13
    assert steps.time_left() == pytest.approx(7 + 10)
    assert steps.times() == "0:13 so far, about 0:17 left"
    clock.now = 40  # longer than thought
    assert steps.time_left() == pytest.approx(10)
    steps.advance()
    steps.advance()
    assert (steps.time_left(), steps.where()) == (0, "all 3 requests")


def test_steps_that_begin_once_more_are_judged_anew() -> None:
    clock = Clock()
    steps = Steps(1, "request", ["a"], clock)
    for now, step in ((0, 1), (50, 2), (100, 1), (110, 2)):
        clock.now = now
        steps.stage(Stage("trying", step, 3))
    assert steps.time_left() == pytest.approx(2 * 10)


def test_what_earlier_requests_took_says_how_long_the_first_will_take() -> None:
    clock = Clock()
    steps = Steps(2, "request", ["a", "b"], clock, took=[30.0, 50.0])
    clock.now = 10
    steps.stage("scoring")
    assert steps.times() == "0:10 so far, about 1:10 left"
    steps.advance()
    clock.now = 120
    assert steps.times() == "2:00 so far, longer than thought"
    steps.advance()
    assert steps.times() == "2:00 so far"


def test_long_stages_tell_their_passes() -> None:
    steps = Steps(1, "request", ["a"])
    seen = []
    with passes_heard(steps.passing):
        steps.stage("scoring")
        for _ in SOLO.map([1, 2], lambda task: (torch.tensor(task),)):
            seen.append(steps.where())
        steps.stage("solving")
        seen.append(steps.where())
        list(SOLO.map([1], lambda task: (torch.tensor(task),)))
        seen.append(steps.where())
    list(SOLO.map([1, 2], lambda task: (torch.tensor(task),)))  # nobody listens
    scoring, solving = "request 1 of 1 (a): scoring", "request 1 of 1 (a): solving"
    assert seen == [f"{scoring}, pass 1 of 2", f"{scoring}, pass 2 of 2", solving, solving]
    assert steps.where() == solving


def test_before_the_second_step_the_passes_say_how_long_they_take() -> None:
    """How many steps there will be, and how long they take, nobody knows yet."""
    clock = Clock()
    steps = Steps(1, "request", ["a"], clock)
    steps.stage("scoring")
    said = []
    for number in (1, 2, 3):
        steps.passing(number, 5)
        said.append(steps.times())
        clock.now += 4
    assert said == [
        "0:00 so far",
        "0:04 so far, these passes about 0:16 more",
        "0:08 so far, these passes about 0:12 more",
    ]
    steps.passing(1, 5)  # others begin
    assert steps.times() == "0:12 so far"
    steps.passing(2, 5)
    steps.stage(Stage("trying", 1, 4))
    assert steps.times() == "0:12 so far"
    clock.now = 20
    steps.stage(Stage("trying", 2, 4))
    steps.passing(1, 5)
    clock.now = 22
    steps.passing(2, 5)  # from now on the steps tell of the whole
    assert steps.times() == "0:22 so far, at most about 0:22 left"


def test_more_than_was_counted_has_no_end_in_sight() -> None:
    steps = Steps(0, "prompts")
    steps.advance(44)
    assert steps.where() == "44 prompts"
    assert steps.time_left() is None
    counted = Steps(50, "prompts")
    counted.advance(44)
    assert counted.where() == "44 of 50 prompts"


def test_what_is_skipped_does_not_count_as_quick() -> None:
    clock = Clock()
    steps = Steps(10, "request", [str(n) for n in range(10)], clock)
    for _ in range(5):
        steps.skip()
    assert steps.time_left() is None
    clock.now = 8
    steps.advance()
    assert steps.time_left() == pytest.approx(4 * 8)


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0:00"), (7.4, "0:07"), (750, "12:30"), (7389, "2:03:09")]
)
def test_durations(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


def test_lines_come_also_while_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_LATEST", 0.05)
    said: list[str] = []
    with PlainLines(said.append, lambda: "loading; 0:01 so far", time.monotonic()):
        for _ in range(100):
            time.sleep(0.05)
            if len(said) > 2:
                break
    assert len(said) > 2
    assert all(re.fullmatch(r"\d\d:\d\d:\d\d loading; 0:01 so far", line) for line in said)
    count = len(said)
    time.sleep(0.15)
    assert len(said) == count  # it has ended


def test_changes_are_not_told_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    with PlainLines(said.append, lambda: "x", time.monotonic()) as lines:
        for _ in range(50):
            lines.changed()
    assert said == []  # it took no time
    monkeypatch.setattr(progress, "_SOONEST", 0.0)
    with PlainLines(said.append, lambda: "x", time.monotonic()) as lines:
        lines.changed()
    assert len(said) == 1


def test_a_pipe_gets_lines_on_stderr_unless_it_wants_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_SOONEST", 0.0)
    for quiet in ("", "1"):
        monkeypatch.setenv("TFRNET_QUIET", quiet)
        with Output(as_json=True).progress(2, "request", ["a", "b"]) as steps:
            steps.stage(Stage("trying", 1, 4))
        captured = capsys.readouterr()
        assert captured.out == ""
        shown = [
            r"\d\d:\d\d:\d\d request 1 of 2 \(a\); 0:00 so far\n",
            r"\d\d:\d\d:\d\d request 1 of 2 \(a\): step 1 of at most 4: trying; 0:00 so far\n",
        ]
        assert re.fullmatch("" if quiet else "".join(shown), captured.err)


def test_work_that_is_split_up_is_as_long_as_the_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TFRNET_QUIET", raising=False)
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    output = Output(as_json=False)
    for _ in range(4):  # none of them is long enough for a line of its own
        with output.waiting("opening"):
            clock.now += 3
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_single_piece_of_work_tells_its_passes_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TFRNET_QUIET", raising=False)
    monkeypatch.setattr(progress, "_LATEST", 0.05)
    with Output(as_json=False).waiting("asking"):
        for _ in SOLO.map([1, 2], lambda task: (torch.tensor(task),)):
            time.sleep(0.3)
    told = capsys.readouterr().err
    assert " asking, pass 1 of 2; " in told
    assert " asking, pass 2 of 2; " in told


def test_whoever_asks_in_a_pipe_is_told_of_every_wait(
    tfrnet: Tfrnet, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TFRNET_QUIET", raising=False)
    monkeypatch.setattr(progress, "_SOONEST", 0.0)
    asked = ["--prompt", "red", "--max-new-tokens", 2, "--device", "cpu"]
    told = tfrnet("generate", *asked, "--state", files.state).unexpected
    began = [re.sub(r"^[\d:]+ |[;,].*", "", line) for line in told]
    assert began[0].startswith("loading ")
    assert began[1:] == ["opening the state", "answering"]


def test_an_export_is_told_from_its_start(
    tfrnet: Tfrnet, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TFRNET_QUIET", raising=False)
    monkeypatch.setattr(progress, "_SOONEST", 0.0)
    told = tfrnet("export", "--state", files.state, "--out", tmp_path / "out").unexpected
    began = [re.sub(r"^[\d:]+ |[;,].*", "", line) for line in told]
    assert began[0] == "starting"
    assert began[1].startswith("loading ")
    assert began[2] == "exporting"


def test_everything_before_a_request_is_told_too(
    tfrnet: Tfrnet, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TFRNET_QUIET", raising=False)
    monkeypatch.setattr(progress, "_SOONEST", 0.0)
    opening = [*files.opening(tmp_path / "new"), *FAST]
    told = tfrnet("forget", "--request", files.request, *opening).unexpected
    began = [re.sub(r"^[\d:]+ |[;,].*", "", line) for line in told]
    assert began[0] == "starting"
    assert began[1].startswith("loading ")
    assert began[2] == "opening the state"
    assert began[3] == "request 1 of 1 (request-2)"


def test_a_second_request_knows_the_time_left_from_the_first(
    tfrnet: Tfrnet, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TFRNET_QUIET", raising=False)
    monkeypatch.setattr(progress, "_SOONEST", 0.0)
    told = tfrnet("forget", "--request", files.request, *files.opening()).unexpected
    first = next(line for line in told if " request 1 of 1 " in line)
    assert re.search(r" so far, about \d+:\d\d left$", first)


def test_what_became_of_a_request_is_said_before_the_next_one_begins(
    tfrnet: Tfrnet, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.delenv("TFRNET_QUIET", raising=False)
    monkeypatch.setattr(progress, "_SOONEST", 0.0)
    for name in ("say", "note"):
        monkeypatch.setattr(Output, name, lambda self, line: said.append(line))
    assert (
        tfrnet("run", "--stream", files.stream, *files.opening(tmp_path / "new"), *FAST).code == 0
    )
    first = next(n for n, line in enumerate(said) if line.startswith("request-0: "))
    second = next(n for n, line in enumerate(said) if " request 2 of 3 " in line)
    assert first < second
