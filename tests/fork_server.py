"""Starts `tfrnet` processes quickly, to be killed at any moment.

Starting Python with torch takes seconds, so a server process loads the code once and forks a
fresh process for every command. It computes nothing itself: torch's threads survive no fork.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

# Reads the arguments of a run as a line of JSON, answers with the process id, then with the exit
# code (negative for a signal). Syncs are slowed down so that many moments fall into a commit.
_SERVER = """
import json, os, signal, sys, time, traceback
import torch
from tfrnet.cli.main import main
from tfrnet.core import files
from tfrnet.models.load import load_model
import tfrnet.session

torch.set_num_threads(1)
load_model(sys.argv[1])
real_fsync = files.fsync
def slow_fsync(descriptor):
    real_fsync(descriptor)
    time.sleep(0.008)
files.fsync = slow_fsync
print("ready", flush=True)
for line in sys.stdin:
    job = json.loads(line)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with open(job["output"], "w") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        sys.argv = ["tfrnet", *job["arguments"]]
        try:
            main()
        except SystemExit as end:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(end.code)
        except BaseException:
            traceback.print_exc()
            os._exit(97)
    print(child, flush=True)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
"""


class Server:
    """Starts `tfrnet` processes quickly."""

    def __init__(self, model: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _SERVER, str(model)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._line() == "ready"

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exception: object) -> None:
        self.process.kill()
        self.process.communicate()

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def run(
        self, arguments: list[str], output: Path, meddle: Callable[[int], None] = lambda pid: None
    ) -> int:
        """Run a command and return its exit code; `meddle` is given its process id meanwhile."""
        assert self.process.stdin is not None
        job = {"arguments": arguments, "output": str(output)}
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        meddle(int(self._line()))
        return int(self._line())


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that may have ended just now."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def wait_for(condition: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.002)
