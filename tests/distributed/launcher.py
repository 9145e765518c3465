"""Starts teams of `tfrnet` processes quickly: one process loads the code and forks the others.

It computes nothing itself: torch's threads survive no fork.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

# So many requests have the streams that teams are given.
REQUESTS = 3

# Reads a job as a line of JSON, answers with the process ids, then with the exit codes (negative
# for a signal). `patch` is code that a process runs first, with its rank as `rank`.
_SERVER = """
import json, os, signal, sys
import torch, torch.distributed, accelerate
from tfrnet.cli.main import main
import tfrnet.session, tfrnet.models.load, tfrnet.distributed.processes, tfrnet.distributed.follow
import transformers.models.llama.modeling_llama

torch.set_num_threads(1)
print("ready", flush=True)
for line in sys.stdin:
    job = json.loads(line)
    children = []
    for rank in range(job["size"]):
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for number, name in ((1, "out"), (2, "err")):
                with open(f"{job['output']}/{rank}.{name}", "w") as file:
                    os.dup2(file.fileno(), number)
            facts = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": job["size"]}
            facts |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": job["port"]}
            facts |= {"ACCELERATE_USE_CPU": "true", "LOCAL_WORLD_SIZE": job["size"]}
            os.environ.update({name: str(value) for name, value in facts.items()})
            os.environ.update(job["environment"])
            sys.argv = ["tfrnet", *job["arguments"]]
            code = 99
            try:
                exec(job["patch"], {"rank": rank})
                main()
            except SystemExit as end:
                code = end.code
            except BaseException:
                import traceback
                traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        children.append(child)
    print(json.dumps(children), flush=True)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    print(json.dumps(codes), flush=True)
"""


class Ended(NamedTuple):
    """How a process ended and what it said."""

    code: int
    out: str
    err: str


class Launcher:
    """Starts teams."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        )
        assert self._line() == "ready"

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def run(
        self,
        size: int,
        arguments: Sequence[object],
        output: Path,
        patch: str = "",
        environment: Mapping[str, str] | None = None,
        meddle: Callable[[list[int]], None] = lambda pids: None,
    ) -> list[Ended]:
        """Run a command in so many processes; `meddle` is given their ids meanwhile."""
        output.mkdir(exist_ok=True)
        job = {
            "size": size,
            "arguments": list(map(str, arguments)),
            "output": str(output),
            "patch": patch,
            "port": _free_port(),
            "environment": dict(environment or {}),
        }
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        pids = json.loads(self._line())
        try:
            meddle(pids)
            codes = json.loads(self._line())
        except BaseException:
            # Nobody is left behind, and the next job finds the server listening.
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._line()
            raise
        return [
            Ended(code, *((output / f"{rank}.{name}").read_text() for name in ("out", "err")))
            for rank, code in enumerate(codes)
        ]

    def close(self) -> None:
        """End the server."""
        self.process.kill()
        self.process.wait()


def said(ended: Ended) -> str:
    """The one line of an error."""
    (line,) = [line for line in ended.err.splitlines() if line.startswith("tfrnet: error: ")]
    return line


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
