"""Detecting and recovering from a device that is out of memory."""

from __future__ import annotations

import re
import traceback

import torch
from accelerate.utils.memory import clear_device_cache, should_reduce_batch_size

# What libraries that torch calls say when they cannot have the memory they need for themselves; an
# internal error is as a rule that, on a card that is nearly full or shared by many processes.
_OF_LIBRARIES = re.compile(
    r"(CUBLAS|CUDNN|CUSOLVER|CUSPARSE)_STATUS_(ALLOC_FAILED|INTERNAL_ERROR|NOT_INITIALIZED)"
)


def is_out_of_memory(error: Exception) -> bool:
    """Tell whether an error means, or may well mean, that a device is out of memory."""
    plain = isinstance(error, torch.OutOfMemoryError) or bool(should_reduce_batch_size(error))
    return plain or library_error(error) is not None


def library_error(error: Exception) -> str | None:
    """Return the name of a library's error that may stand for a lack of memory."""
    found = _OF_LIBRARIES.search(str(error)) if isinstance(error, RuntimeError) else None
    return found.group() if found else None


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
