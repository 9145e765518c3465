"""What a newcomer sees first, and what a system without POSIX locks says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import tiny
from tests.integration.commands import Tfrnet
from tfrnet.cli.app import COMMANDS
from tfrnet.cli.opening import DEFAULT_MODEL
from tfrnet.core.errors import InputError
from tfrnet.session import Session


def test_without_arguments_five_commands_are_shown(tfrnet: Tfrnet) -> None:
    result = tfrnet()
    assert (result.code, result.err) == (0, "")
    shown = re.findall(r"^  tfrnet ([\w-]+)", result.out, flags=re.MULTILINE)
    assert len(shown) == 5
    assert set(shown) <= set(COMMANDS.names())


def test_that_the_default_model_is_a_4_bit_copy_is_said(
    tfrnet: Tfrnet, tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "Q4_1" in tfrnet("generate", "--help").out
    with Session(
        tiny.make_model(), tokenizer, tmp_path / "state", tiny.examples(5), model_name=DEFAULT_MODEL
    ):
        pass
    copy = "smollm2-135m (SmolLM2-135M-Instruct, a 4-bit copy: Q4_1)"
    shown = tfrnet("status", "--state", tmp_path / "state").out
    assert re.search(rf"^model +{re.escape(copy)}$", shown, flags=re.MULTILINE)

    def stop(*arguments: object) -> None:
        raise InputError("not now")

    monkeypatch.setattr("tfrnet.models.load.load_model", stop)
    monkeypatch.setattr("tfrnet.cli.progress._SOONEST", 0.0)
    monkeypatch.delenv("TFRNET_QUIET", raising=False)
    result = tfrnet("generate", "--prompt", "red", "--untouched")
    assert f" loading {copy}; " in result.err


# What Python does not have on Windows.
_AS_ON_WINDOWS = """
import os, signal, sys
for name in ("fcntl", "grp", "pwd", "resource", "termios", "tty"):
    sys.modules[name] = None
for name in ("SIGHUP", "SIGKILL", "SIGUSR1", "SIGALRM", "pthread_sigmask", "setitimer"):
    delattr(signal, name)
for name in ("fork", "getuid", "geteuid", "fchmod", "sched_getaffinity", "killpg", "O_DIRECTORY"):
    delattr(os, name)
"""


@pytest.mark.parametrize(
    "command", ["status", *(pytest.param(c, marks=pytest.mark.slow) for c in ("demo", "serve"))]
)
def test_windows_is_told_in_one_line(command: str) -> None:
    done = _on_windows(
        f"sys.argv = ['tfrnet', '{command}']; from tfrnet.cli.main import main; main()"
    )
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("tfrnet: error: tfrnet needs a POSIX system")


@pytest.mark.slow
def test_an_import_on_windows_says_why_it_fails() -> None:
    done = _on_windows("from tfrnet import Session")
    assert "on Windows use WSL" in done.stderr.splitlines()[-1]


def _on_windows(program: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", f"{_AS_ON_WINDOWS}\n{program}"]
    return subprocess.run(command, capture_output=True, text=True, check=False)
