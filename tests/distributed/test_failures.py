"""Nothing is lost, nobody waits, and the first process says why when one of several fails."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from tests.distributed.launcher import REQUESTS, Launcher, said
from tests.states import story, tensors
from tfrnet.core.errors import TeamError
from tfrnet.distributed.processes import ProcessTeam
from tfrnet.method_state import verify_state
from tfrnet.state.store import StateStore

# Processes are started and waited for in every one.
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("who", [0, 1])
def test_a_process_that_dies_leaves_the_state_and_the_same_command_goes_on(
    who: int, launcher: Launcher, command: list[object], tmp_path: Path
) -> None:
    arguments = [*command, "--state", tmp_path / "state"]
    whole = [*command, "--state", tmp_path / "whole"]
    assert launcher.run(1, whole, tmp_path / "1")[0].code in (0, 1)
    dies = f"""
import os, pathlib, signal, tfrnet.methods.tfr.scoring as scoring
real, ledger = scoring.collate, pathlib.Path({str(tmp_path / "state" / "ledger.jsonl")!r})
def collate(*arguments):
    if rank == {who} and ledger.exists() and ledger.read_text().count("\\n") > 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments)
scoring.collate = collate
"""
    start = time.monotonic()
    ended = launcher.run(2, arguments, tmp_path / "2", dies)
    assert time.monotonic() - start < 60
    assert ended[who].code == -signal.SIGKILL
    other = ended[1 - who]
    assert other.code == 2
    assert "another process was lost or does not answer" in said(other)
    assert "run the same command again to continue" in said(other)
    with StateStore.open(tmp_path / "state", write=True) as store:
        assert store.repairs == []
        assert 0 < store.history.requests_seen < REQUESTS
    assert launcher.run(2, arguments, tmp_path / "2")[0].code in (0, 1)
    assert tensors(tmp_path / "state") == tensors(tmp_path / "whole")
    assert story(tmp_path / "state") == story(tmp_path / "whole")


def test_a_process_that_hangs_is_given_up(
    launcher: Launcher, command: list[object], tmp_path: Path
) -> None:
    state = tmp_path / "state"
    stopped: list[float] = []

    def stop_second(pids: list[int]) -> None:
        end = time.monotonic() + 60
        ledger = state / "ledger.jsonl"
        while not ledger.exists() or ledger.read_text().count("\n") < 2:
            assert time.monotonic() < end, "no request was done"
            time.sleep(0.005)
        os.kill(pids[1], signal.SIGSTOP)
        stopped.append(time.monotonic())
        while Path(f"/proc/{pids[0]}").exists():
            assert time.monotonic() < end, "the first process hangs"
            time.sleep(0.05)
        stopped.append(time.monotonic())
        os.kill(pids[1], signal.SIGKILL)

    # Slow enough for the signal to come in time.
    slow = """
import time, tfrnet.methods.tfr.scoring as scoring
real = scoring.collate
scoring.collate = lambda *arguments: (time.sleep(0.02), real(*arguments))[1]
"""
    first, _ = launcher.run(
        2,
        [*command, "--state", state],
        tmp_path / "output",
        slow,
        {"TFRNET_TIMEOUT": "3"},
        stop_second,
    )
    assert first.code == 2
    assert "does not answer" in said(first)
    assert 2.5 < stopped[1] - stopped[0] < 15
    assert [check for check in verify_state(state) if not check.passed] == []


@pytest.mark.parametrize(
    ("patch", "complaint"),
    [
        (
            "import tfrnet.models.load as load, torch\n"
            "real = load.load_model\n"
            "def other(*a):\n"
            "    loaded = real(*a)\n"
            "    if rank: next(loaded.model.parameters()).data.mul_(1.5)\n"
            "    return loaded\n"
            "load.load_model = other",
            "the processes differ in the model's weights",
        ),
        (
            "import tfrnet.models.load as load\n"
            "real = load.load_model\n"
            "def full(*a):\n"
            "    if rank: raise MemoryError\n"
            "    return real(*a)\n"
            "load.load_model = full",
            "process 1: MemoryError",
        ),
        (
            "import tfrnet.distributed.together as together\n"
            "real = together.versions\n"
            "together.versions = lambda: real() | {'torch': f'2.{rank}'}",
            "the processes differ in versions",
        ),
        (
            "import tfrnet.distributed.together as together\n"
            "real = together._facts\n"
            "together._facts = lambda *a: real(*a) | {'the device': ['cpu', 'NVIDIA H200'][rank]}",
            "the processes differ in the device: cpu on process 0, NVIDIA H200 on process 1",
        ),
        (
            "import tfrnet.models.load as load\n"
            "from tfrnet.core.errors import InputError\n"
            "real = load.load_model\n"
            "def missing(*a):\n"
            "    if rank: raise InputError('model folder x does not exist')\n"
            "    return real(*a)\n"
            "load.load_model = missing",
            "process 1: model folder x does not exist",
        ),
        (
            "import tfrnet.methods.tfr.scoring as scoring, torch\n"
            "def full(*a):\n"
            "    if rank: raise torch.OutOfMemoryError('no memory')\n"
            "    return real(*a)\n"
            "real, scoring._batch_gradients = scoring._batch_gradients, full",
            "process 1: one example alone does not fit into the device's memory",
        ),
        (
            "import tfrnet.methods.tfr.scoring as scoring\n"
            "def broken(*a):\n"
            "    if rank: raise RuntimeError('the driver is gone')\n"
            "    return real(*a)\n"
            "real, scoring._batch_gradients = scoring._batch_gradients, broken",
            "process 1: the driver is gone; nothing was changed",
        ),
        (
            "import tfrnet.methods.tfr.model as controller\n"
            "real = controller.score_risk\n"
            "def differs(*a):\n"
            "    found = real(*a)\n"
            "    if rank: found.trajectory.risk.add_(1)\n"
            "    return found\n"
            "controller.score_risk = differs",
            "the processes differ in the new state",
        ),
        (
            "import tfrnet.methods.tfr.model as controller\n"
            "real = controller.score_risk\n"
            "def fails(*a):\n"
            "    if rank: raise ValueError('no evidence')\n"
            "    return real(*a)\n"
            "controller.score_risk = fails",
            "process 1: no evidence",
        ),
        (
            "import tfrnet.methods.tfr.model as controller\n"
            "from tfrnet.core.errors import InputError\n"
            "real = controller.score_risk\n"
            "def fails(*a):\n"
            "    if not rank: raise InputError('no evidence')\n"
            "    return real(*a)\n"
            "controller.score_risk = fails",
            "error: no evidence",
        ),
    ],
    ids=[
        "weights",
        "nameless",
        "versions",
        "devices",
        "load",
        "memory",
        "crash",
        "numbers",
        "outside",
        "leader",
    ],
)
def test_what_one_process_cannot_do_or_has_otherwise_is_said_by_the_first(
    launcher: Launcher, command: list[object], tmp_path: Path, patch: str, complaint: str
) -> None:
    state = tmp_path / "state"
    first, second = launcher.run(2, [*command, "--state", state], tmp_path / "output", patch)
    assert first.code == 2, first.err
    assert complaint in said(first)
    assert (second.code, second.err, second.out) == (0, "", "")
    if state.exists():
        assert StateStore.open(state).history.requests_seen == 0


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (["--method", "ga"], "method ga runs in one process, but 2 were launched"),
        (["--device", "balanced"], "--device balanced works with one process only"),
        (["--retain", "nowhere.jsonl"], "nowhere.jsonl"),
        (["--set", "steps=many"], "steps"),
    ],
)
def test_wrong_input_is_said_once_and_nobody_waits(
    launcher: Launcher, command: list[object], tmp_path: Path, more: list[str], complaint: str
) -> None:
    if "ga" in more:
        command = [argument for argument in command if argument != "--set=retain_examples=5"]
    arguments = [*command, *more, "--state", tmp_path / "state"]
    first, second = launcher.run(2, arguments, tmp_path / "output")
    assert first.code == 2
    assert complaint in said(first)
    assert second.err == ""
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("moment", ["loading", "working"])
def test_ctrl_c_in_one_process_ends_all(
    launcher: Launcher, command: list[object], tmp_path: Path, moment: str
) -> None:
    where = {
        "loading": ("tfrnet.models.load", "load_model"),
        "working": ("tfrnet.methods.tfr.model", "score_risk"),
    }
    module, name = where[moment]
    patch = f"""
import {module} as module
real = module.{name}
def interrupted(*a):
    if rank == 0: raise KeyboardInterrupt
    return real(*a)
module.{name} = interrupted
"""
    start = time.monotonic()
    arguments = [*command, "--state", tmp_path / "state"]
    first, second = launcher.run(2, arguments, tmp_path / "output", patch)
    assert time.monotonic() - start < 60
    assert first.code == 130
    assert "interrupted" in said(first)
    assert (second.code, second.err) == (0, "")


def test_a_commit_that_fails_is_undone_in_all_processes(
    launcher: Launcher, command: list[object], tmp_path: Path
) -> None:
    full = """
import tfrnet.state.store as store
def commit(*a, **b):
    raise OSError(28, "No space left on device")
store.StateStore.commit = commit
"""
    arguments = [*command, "--state", tmp_path / "state"]
    first, second = launcher.run(2, arguments, tmp_path / "output", full)
    assert first.code == 2
    assert "No space left" in said(first)
    assert (second.code, second.err) == (0, "")
    assert StateStore.open(tmp_path / "state").history.requests_seen == 0


def test_with_weights_spread_the_reason_is_said_though_the_others_cannot_be_reached(
    launcher: Launcher, command: list[object], tmp_path: Path
) -> None:
    fails = """
import tfrnet.methods.tfr.scoring as scoring, torch
real, calls = scoring._batch_gradients, []
def full(*a):
    calls.append(1)
    if rank and len(calls) > 1: raise torch.OutOfMemoryError("no memory left")
    return real(*a)
scoring._batch_gradients = full
"""
    arguments = [*command, "--state", tmp_path / "state"]
    start = time.monotonic()
    fsdp = {"ACCELERATE_USE_FSDP": "true"}
    first, second = launcher.run(2, arguments, tmp_path / "output", fails, fsdp)
    assert time.monotonic() - start < 60
    assert first.code == second.code == 2
    for told in (said(first), second.err):
        assert re.search(r"process 1: a pass of \d+ examples does not fit .* --batch-size", told)
    assert StateStore.open(tmp_path / "state").history.requests_seen == 0
    half = [*arguments, "--dtype", "float16"]
    first, _ = launcher.run(2, half, tmp_path / "output", "", fsdp)
    assert "use bfloat16" in said(first)


def test_processes_that_took_different_ways_are_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No way leads there that we know of, so the other's answer is made up."""
    monkeypatch.setattr(dist, "get_rank", lambda: 0)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)

    def gather(found: list[object], mine: object, group: object) -> None:
        found[:] = [mine, type(mine)("task 0 of 3")]  # type: ignore[call-arg]

    monkeypatch.setattr(dist, "all_gather_object", gather)
    team = ProcessTeam(torch.device("cpu"))
    with pytest.raises(TeamError, match=r"facts \(process 0\), task 0 of 3 \(process 1\)"):
        team.agree({"a": "b"})
    assert team.is_over
