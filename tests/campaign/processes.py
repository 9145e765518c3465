"""Work in forked processes, for what must happen at the same time."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any


def in_processes(jobs: list[Callable[[], Any]]) -> list[Any]:
    """Do every job in a process of its own and return what each returned, as JSON knows it."""
    started = [_start(job) for job in jobs]
    answers = []
    for pid, reader in started:
        with os.fdopen(reader) as pipe:
            answer = pipe.read()
        _, status = os.waitpid(pid, 0)
        answers.append((os.waitstatus_to_exitcode(status), answer))
    for code, answer in answers:
        if code != 0:
            raise RuntimeError(f"a process of the campaign failed: {answer}")
    return [json.loads(answer) for _, answer in answers]


def _start(job: Callable[[], Any]) -> tuple[int, int]:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        return pid, reader
    os.close(reader)
    code = 1
    try:
        try:
            answer = json.dumps(job())
            code = 0
        except BaseException:
            answer = traceback.format_exc()
        with os.fdopen(writer, "w") as pipe:
            pipe.write(answer)
    finally:
        sys.stdout.flush()
        os._exit(code)
