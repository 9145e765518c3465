"""Detecting and recovering from a device that is out of memory."""

from __future__ import annotations

import traceback

import torch
from accelerate.utils.memory import clear_device_cache, should_reduce_batch_size


def is_out_of_memory(error: Exception) -> bool:
    """Tell whether an error means that a device is out of memory.

    Libraries that torch calls raise errors of their own for it.
    """
    return isinstance(error, torch.OutOfMemoryError) or bool(should_reduce_batch_size(error))


def free_garbage() -> None:
    """Free unused memory, including objects that only the garbage collector can find."""
    clear_device_cache(garbage_collection=True)


def free_all_of(error: BaseException) -> None:
    """Free the local variables in the tracebacks of an error and of the errors that led to it.

    A raised error keeps them all alive.
    """
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        held = pending.pop()
        if held is not None and id(held) not in seen:
            seen.add(id(held))
            traceback.clear_frames(held.__traceback__)
            pending += [held.__cause__, held.__context__]
    free_garbage()
