"""A small card out of a large one: another process holds the rest of its memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

# Holds all but the given number of bytes until its input ends.
_HOLDER = """
import sys, torch
device = torch.device(sys.argv[2])
free, _ = torch.cuda.mem_get_info(device)
held = torch.empty(max(0, free - int(sys.argv[1])), dtype=torch.uint8, device=device)
print(torch.cuda.mem_get_info(device)[0], flush=True)
sys.stdin.read()
"""

_CLOSE_ENOUGH = 0.98


@contextmanager
def only_left(gigabytes: float, device: torch.device) -> Iterator[None]:
    """Leave this process so much of the GPU, its own context included.

    Not a limit of torch's own: what a method reads of free memory must be the small card's too.
    """
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(int(gigabytes * 1e9)), str(device)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdin and holder.stdout
    try:
        said = holder.stdout.readline().strip()
        if not said:
            raise SystemExit("the GPU's memory could not be held; is there a GPU?")
        if int(said) < _CLOSE_ENOUGH * gigabytes * 1e9:
            raise SystemExit(
                f"only {int(said) / 1e9:.1f} GB of the GPU are free, not {gigabytes:g}"
            )
        yield
    finally:
        holder.stdin.close()
        holder.wait()
        holder.stdout.close()
