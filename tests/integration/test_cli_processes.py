"""The command line in processes of its own: pipes, help at once, readers that go away."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.commands import Files, Tfrnet

SCRIPT = Path(sys.executable).with_name("tfrnet")


def test_output_in_a_pipe_is_plain_lines(files: Files, tmp_path: Path) -> None:
    environment = os.environ | {"FORCE_COLOR": "", "COLUMNS": "40"}
    environment.pop("FORCE_COLOR")
    finished = subprocess.run(
        [str(part) for part in (SCRIPT, "run", "--stream", files.stream, *files.opening())],
        capture_output=True,
        env=environment,
    )
    assert finished.returncode == 0
    assert finished.stderr == b""
    assert b"\x1b" not in finished.stdout
    assert b"\r" not in finished.stdout
    assert len(finished.stdout.splitlines()) == 3  # not wrapped at 40 columns


def children_seconds() -> float:
    """Return the CPU time of finished child processes: others at work do not count in it."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize(
    "code",
    [
        "import tfrnet; tfrnet.__version__",
        "import tfrnet; tfrnet.TFRConfig.paper()",
        "import sys; sys.argv = ['tfrnet', '--help']; from tfrnet.cli.main import main; main()",
        "import sys; sys.argv = ['tfrnet', 'run', '--help']; "
        "from tfrnet.cli.main import main; main()",
    ],
    ids=["import", "config", "help", "help of a command"],
)
def test_import_and_help_do_not_load_torch_and_answer_at_once(code: str) -> None:
    check = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(*sorted({'torch', 'transformers', 'numpy', 'safetensors'}"
        " & set(sys.modules)), file=sys.stderr))\n"
    )
    seconds = []
    for _ in range(3):
        started = children_seconds()
        finished = subprocess.run(
            [sys.executable, "-c", check + code], capture_output=True, text=True
        )
        seconds.append(children_seconds() - started)
        assert finished.returncode == 0, finished.stderr
        assert finished.stderr.split() == []
        if seconds[-1] < 1:
            break
    assert min(seconds) < 1


def test_the_help_names_every_command(tfrnet: Tfrnet) -> None:
    result = tfrnet("--help")
    assert (result.code, result.err) == (0, "")
    commands = ["forget", "run", "status", "history", "verify", "rollback"]
    commands += ["export", "generate", "demo"]
    assert [command for command in commands if command not in result.out] == []


def test_help_takes_under_a_second_from_the_shell() -> None:
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        finished = subprocess.run([SCRIPT, "--help"], capture_output=True)
        seconds.append(time.perf_counter() - started)
        assert finished.returncode == 0
        if seconds[-1] < 1:
            break
    assert min(seconds) < 1


def test_a_reader_that_goes_away_is_no_traceback(files: Files) -> None:
    command = [SCRIPT, "history", "--state", files.state]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()
