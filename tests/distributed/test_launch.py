"""How processes find each other, and who does what."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tests.distributed.launcher import Launcher, said
from tests.states import story, tensors
from tfrnet.cli.app import COMMANDS
from tfrnet.cli.sharing import is_shared
from tfrnet.core.errors import InputError
from tfrnet.distributed.launch import joined_team


def test_of_other_commands_only_the_first_process_does_anything() -> None:
    assert {name for name, command in COMMANDS.all().items() if is_shared(command)} == {
        "eval",
        "forget",
        "run",
    }


@pytest.mark.long
def test_accelerate_launches_it(command: list[object], tmp_path: Path, launcher: Launcher) -> None:
    """The same without our launcher, as a user starts it; who was started leaves its rank."""
    own, other = tmp_path / "own", tmp_path / "other"
    roll = tmp_path / "roll"
    roll.mkdir()
    (roll / "sitecustomize.py").write_text(
        "import os, pathlib\n"
        "if 'RANK' in os.environ:\n"
        f"    pathlib.Path({str(roll)!r}, 'rank' + os.environ['RANK']).touch()\n"
    )
    # Without GPUs accelerate starts one process only, unless it is told that there are some.
    start = [Path(sys.executable).with_name("accelerate"), "launch", "--multi_gpu"]
    start += ["--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no"]
    done = subprocess.run(
        [*map(str, start), "-m", "tfrnet", *map(str, command), "--state", str(own)],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(roll)},
    )
    assert sorted(path.name for path in roll.glob("rank*")) == ["rank0", "rank1"]
    ended = launcher.run(1, [*command, "--state", other], tmp_path / "output")
    assert (done.returncode == 0) == (ended[0].code == 0), done.stderr
    assert done.stdout.count("accepted, forget loss") == ended[0].out.count("accepted, forget loss")
    assert tensors(own) == tensors(other)
    assert story(own) == story(other)


def test_a_process_that_never_comes_is_not_waited_for_forever(
    launcher: Launcher, command: list[object], tmp_path: Path
) -> None:
    absent = """
import os
if rank: os._exit(0)
"""
    arguments = [*command, "--state", tmp_path / "state"]
    start = time.monotonic()
    first, _ = launcher.run(2, arguments, tmp_path / "output", absent, {"TFRNET_TIMEOUT": "3"})
    assert time.monotonic() - start < 30
    assert first.code == 2
    assert "the 2 processes did not find each other" in said(first)
    assert not (tmp_path / "state").exists()


def test_more_processes_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with (
        pytest.raises(InputError, match="4 processes were started on a machine with 2 GPUs"),
        joined_team("auto"),
    ):
        pass


def test_a_timeout_that_is_no_number_is_refused(
    launcher: Launcher, command: list[object], tmp_path: Path
) -> None:
    arguments = [*command, "--state", tmp_path / "state"]
    first, _ = launcher.run(2, arguments, tmp_path / "output", "", {"TFRNET_TIMEOUT": "soon"})
    assert first.code == 2
    assert "TFRNET_TIMEOUT must be a number of seconds, not 'soon'" in said(first)


def test_other_commands_are_done_by_the_first_process_alone(
    launcher: Launcher, tmp_path: Path
) -> None:
    first, second = launcher.run(2, ["settings"], tmp_path / "output")
    assert first.code == 0
    assert "guard_relative" in first.out
    assert (second.code, second.out, second.err) == (0, "", "")
