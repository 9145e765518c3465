"""A small card out of a large one: another process holds the rest of its memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Holds all but the given number of bytes until its input ends.
_HOLDER = """
import sys, torch
free, _ = torch.cuda.mem_get_info()
held = torch.empty(max(0, free - int(sys.argv[1])), dtype=torch.uint8, device="cuda")
print(torch.cuda.mem_get_info()[0], flush=True)
sys.stdin.read()
"""


@contextmanager
def only_left(gigabytes: float) -> Iterator[int]:
    """Leave this process so much of the GPU, its own context included; yield the bytes left.

    Not a limit of torch's own: what a method reads of free memory must be the small card's too.
    """
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(int(gigabytes * 1e9))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdin and holder.stdout
    try:
        said = holder.stdout.readline().strip()
        if not said:
            raise SystemExit("the GPU's memory could not be held; is there a GPU?")
        yield int(said)
    finally:
        holder.stdin.close()
        holder.wait()
