"""How far a command is: the time left, and lines in a pipe."""

from __future__ import annotations

import re
import time

import pytest

from tfrnet.cli import progress
from tfrnet.cli.output import Output
from tfrnet.cli.progress import PlainLines, Steps, duration
from tfrnet.core.stage import Stage


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
    with PlainLines(said.append, lambda: "loading; 0:01 so far"):
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
    with PlainLines(said.append, lambda: "x") as lines:
        for _ in range(50):
            lines.changed()
    assert said == []  # it took no time
    monkeypatch.setattr(progress, "_SOONEST", 0.0)
    with PlainLines(said.append, lambda: "x") as lines:
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
        shown = r"\d\d:\d\d:\d\d request 1 of 2 \(a\): step 1 of at most 4: trying; 0:00 so far\n"
        assert re.fullmatch("" if quiet else shown, captured.err)
