"""Real processes, killed and interrupted at any moment: a stream always ends in the same bits."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import tiny
from tests.fork_server import Server, send, wait_for
from tests.states import story, tensors
from tfrnet.method_state import verify_state
from tfrnet.state.store import StateStore

REQUESTS = 8
MOMENTS = 8


@pytest.fixture(scope="module")
def server(tiny_folder: Path) -> Iterator[Server]:
    with Server(tiny_folder) as server:
        yield server


def lines_of_ledger(folder: Path) -> int:
    path = folder / "ledger.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.fixture(scope="module")
def arguments(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The arguments of `tfrnet run` but for the state."""
    data = tmp_path_factory.mktemp("data")
    retain, stream = data / "retain.jsonl", data / "stream.jsonl"
    retain.write_text("".join(json.dumps(e.to_dict()) + "\n" for e in tiny.examples(12)))
    requests = tiny.requests(REQUESTS, size=2)
    stream.write_text("".join(json.dumps(r.to_dict()) + "\n" for r in requests))
    # So tight a guard rejects some of the requests.
    settings = ["steps=1", "guard_examples=4", "retain_examples=6"]
    settings += ["backtracks=0", "guard_relative=0.0005"]
    return [
        *("run", "--stream", str(stream), "--retain", str(retain)),
        *("--model", str(tiny_folder), "--device", "cpu", "--preset", "deep"),
        *(part for setting in settings for part in ("--set", setting)),
    ]


class Undisturbed(NamedTuple):
    """An undisturbed run: its state, seconds to the first ledger line, and per request."""

    state: Path
    start: float
    request: float


@pytest.fixture(scope="module")
def undisturbed(
    server: Server, arguments: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Undisturbed:
    folder = tmp_path_factory.mktemp("undisturbed")
    state = folder / "state"
    moments = [time.monotonic()]

    def watch(pid: int) -> None:
        wait_for(lambda: lines_of_ledger(state) > 0)
        moments.append(time.monotonic())

    code = server.run([*arguments, "--state", str(state)], folder / "output", watch)
    moments.append(time.monotonic())
    assert code == 1, (folder / "output").read_text()  # some are rejected
    outcomes = [entry["outcome"] for entry in story(state)]
    assert len(outcomes) == REQUESTS
    assert set(outcomes) == {"accepted", "rejected"}
    start, rest = (after - before for before, after in pairwise(moments))
    return Undisturbed(state, start, rest / REQUESTS)


def assert_same_end(folder: Path, expected: Path) -> None:
    assert story(folder) == story(expected)
    assert tensors(folder) == tensors(expected)
    assert [check for check in verify_state(folder) if not check.passed] == []
    assert list(folder.rglob("*.partial")) == []


def at_random_moment(
    state: Path, undisturbed: Undisturbed, moment: int, number: signal.Signals
) -> Callable[[int], None]:
    """Send a signal at a random moment of the `moment`-th of MOMENTS parts of a run.

    The ledger is the clock, so that it comes in time on a machine under any load.
    """
    lines = moment * REQUESTS // MOMENTS
    stretch = undisturbed.request if lines else undisturbed.start
    delay = random.Random(moment).random() * stretch

    def meddle(pid: int) -> None:
        wait_for(lambda: lines_of_ledger(state) >= lines)
        time.sleep(delay)
        send(pid, number)

    return meddle


@pytest.mark.slow
@pytest.mark.parametrize("moment", range(MOMENTS))
def test_a_stream_killed_at_a_random_moment_ends_in_the_same_bits(
    server: Server, arguments: list[str], undisturbed: Undisturbed, tmp_path: Path, moment: int
) -> None:
    state = tmp_path / "state"
    command = [*arguments, "--state", str(state)]
    kill = at_random_moment(state, undisturbed, moment, signal.SIGKILL)
    assert server.run(command, tmp_path / "killed", kill) == -signal.SIGKILL
    assert server.run(command, tmp_path / "resumed") in (0, 1)
    assert_same_end(state, undisturbed.state)


@pytest.mark.slow
def test_a_stream_killed_after_every_line_of_its_ledger_ends_in_the_same_bits(
    server: Server, arguments: list[str], undisturbed: Undisturbed, tmp_path: Path
) -> None:
    """The moment is random within the rest of the commit and the beginning of what follows."""
    state = tmp_path / "state"
    command = [*arguments, "--state", str(state)]
    chance = random.Random(1)

    def kill(pid: int) -> None:
        done = lines_of_ledger(state)
        wait_for(lambda: lines_of_ledger(state) > done)
        time.sleep(chance.random() * 0.05)
        send(pid, signal.SIGKILL)

    kills = 0
    while lines_of_ledger(state) < REQUESTS:
        assert server.run(command, tmp_path / "output", kill) == -signal.SIGKILL
        kills += 1
    assert kills >= 4
    assert server.run(command, tmp_path / "output") in (0, 1)
    assert_same_end(state, undisturbed.state)


def assert_said_interrupted_once(output: Path) -> None:
    said = output.read_text()
    assert said.count("interrupted") == 1
    assert "interrupted" in said.splitlines()[-1]
    assert "Traceback" not in said


@pytest.mark.slow
def test_ctrl_c_ends_with_130_and_one_line_and_the_same_command_goes_on(
    server: Server, arguments: list[str], undisturbed: Undisturbed, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    command = [*arguments, "--state", str(state)]

    def interrupt(pid: int) -> None:
        wait_for(lambda: lines_of_ledger(state) >= 3)
        send(pid, signal.SIGINT)

    assert server.run(command, tmp_path / "output", interrupt) == 130
    assert_said_interrupted_once(tmp_path / "output")
    assert [check for check in verify_state(state) if not check.passed] == []
    with StateStore.open(state, write=True) as store:
        assert store.repairs == []
        # The second may have been abandoned in mid-commit.
        assert 1 <= store.history.requests_seen < REQUESTS
    assert server.run(command, tmp_path / "resumed") in (0, 1)
    assert "requests were already done" in (tmp_path / "resumed").read_text()
    assert_same_end(state, undisturbed.state)


@pytest.mark.slow
@pytest.mark.parametrize("moment", [0, 1, 7])
def test_ctrl_c_at_a_random_moment_leaves_a_sound_state(
    server: Server, arguments: list[str], undisturbed: Undisturbed, tmp_path: Path, moment: int
) -> None:
    state = tmp_path / "state"
    command = [*arguments, "--state", str(state)]
    interrupt = at_random_moment(state, undisturbed, moment, signal.SIGINT)
    assert server.run(command, tmp_path / "output", interrupt) == 130
    assert_said_interrupted_once(tmp_path / "output")
    if StateStore.exists(state):
        assert [check for check in verify_state(state) if not check.passed] == []
    assert server.run(command, tmp_path / "resumed") in (0, 1)
    assert_same_end(state, undisturbed.state)


@pytest.mark.slow
def test_a_second_process_on_the_same_state_is_told_and_the_first_is_not_disturbed(
    server: Server, arguments: list[str], undisturbed: Undisturbed, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    command = [*arguments, "--state", str(state)]
    second: list[subprocess.CompletedProcess] = []

    def start_another(pid: int) -> None:
        wait_for(lambda: lines_of_ledger(state) >= 2)
        os.kill(pid, signal.SIGSTOP)
        try:
            tfrnet = Path(sys.executable).with_name("tfrnet")
            second.append(
                subprocess.run(
                    [tfrnet, "rollback", "--to", "0", "--state", state],
                    capture_output=True,
                    text=True,
                )
            )
            assert f"in use by process {pid}" in second[0].stderr
        finally:
            os.kill(pid, signal.SIGCONT)

    assert server.run(command, tmp_path / "output", start_another) == 1
    assert second[0].returncode == 2
    assert len(second[0].stderr.splitlines()) == 1
    assert_same_end(state, undisturbed.state)


@pytest.mark.long
@pytest.mark.slow
def test_the_installed_command_killed_in_mid_stream_resumes(
    arguments: list[str], undisturbed: Undisturbed, tmp_path: Path
) -> None:
    """The same without the server: the console script as a user starts it."""
    state = tmp_path / "state"
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [Path(sys.executable).with_name("tfrnet"), *arguments, "--state", state]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        wait_for(lambda: lines_of_ledger(state) >= 4, seconds=60)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    resumed = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert resumed.returncode in (0, 1), resumed.stderr
    assert_same_end(state, undisturbed.state)
