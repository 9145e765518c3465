"""Joining the processes that a launcher has started: accelerate launch, torchrun or another."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from tfrnet.core.errors import InputError, TeamError
from tfrnet.core.team import SOLO, Team
from tfrnet.core.text import printable
from tfrnet.distributed.environment import launched_size

if TYPE_CHECKING:
    from tfrnet.distributed.processes import ProcessTeam

# How long a process waits for another before it gives up, in seconds.
TIMEOUT_VARIABLE = "TFRNET_TIMEOUT"
_DEFAULT_TIMEOUT = 1800


@contextmanager
def joined_team(device: str, led: bool = True) -> Iterator[tuple[Team, str]]:
    """Yield the team and the device of this process; the others are told when it ends or fails.

    Without `led`, every process runs the same program and shares only parts of the work. The number
    of processes is read from the launcher's environment; without a launcher it is one.
    """
    if launched_size() == 1:
        yield SOLO, device
        return
    if device not in ("auto", "cpu", "cuda"):
        raise InputError(
            f"--device {device} works with one process only; with {launched_size()} use auto or "
            "cpu, and each process puts the whole model on its own device"
        )
    import torch.distributed as dist

    from tfrnet.distributed.processes import is_agreed

    team = _join(device, led)
    try:
        # A model to be sharded is loaded on the CPU, since it may not fit on one GPU.
        yield team, "cpu" if team.in_lockstep else str(team.device)
    except Exception as error:
        if not team.leads and not is_agreed(error):
            print(
                f"tfrnet: error: process {team.rank}: {printable(str(error))}",
                file=sys.stderr,
                flush=True,
            )
        raise
    finally:
        intact = not team.is_over
        if led:
            team.end()
        if intact:
            # If a process is missing, this might wait for it forever.
            dist.destroy_process_group()


def _join(device: str, led: bool) -> ProcessTeam:
    import torch
    import torch.distributed as dist
    from accelerate import PartialState

    from tfrnet.distributed.processes import ProcessTeam
    from tfrnet.distributed.shard import sharding_wanted

    spread = sharding_wanted()
    if spread and not led:
        raise InputError(
            "a model sharded by FSDP can forget but cannot be evaluated; use --device balanced"
        )
    if spread:
        # Otherwise transformers loads the weights in one process only and leaves the rest to
        # accelerate; here every process loads them, and all compare their fingerprints.
        os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] = "false"
    timeout = timedelta(seconds=_timeout())
    here, cards = int(os.environ.get("LOCAL_WORLD_SIZE", "1")), torch.cuda.device_count()
    if device != "cpu" and 0 < cards < here:
        raise InputError(
            f"{here} processes were started on a machine with {cards} GPUs; start one per GPU"
        )
    try:
        place = PartialState(cpu=device == "cpu", timeout=timeout)
        gloo = place.backend == "gloo"
        control = None if gloo else dist.new_group(backend="gloo", timeout=timeout)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise TeamError(
            f"the {launched_size()} processes did not find each other ({reason})"
        ) from error
    return ProcessTeam(place.device, control, in_lockstep=spread)


def _timeout() -> float:
    given = os.environ.get(TIMEOUT_VARIABLE, str(_DEFAULT_TIMEOUT))
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0
    if seconds <= 0:
        raise InputError(f"{TIMEOUT_VARIABLE} must be a number of seconds, not {given!r}")
    return seconds
