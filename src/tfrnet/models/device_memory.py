"""What to do when a device's memory is full."""

from __future__ import annotations

import traceback

import torch
from accelerate.utils.memory import clear_device_cache, should_reduce_batch_size


def is_out_of_memory(error: Exception) -> bool:
    """Tell whether an error says that a device's memory is full.

    Not only torch's own error does: libraries it calls have words of their own for it.
    """
    return isinstance(error, torch.OutOfMemoryError) or bool(should_reduce_batch_size(error))


def free_garbage() -> None:
    """Give back what nobody holds any more, also what only the garbage collector would find."""
    clear_device_cache(garbage_collection=True)


def free_all_of(error: BaseException) -> None:
    """Free what the functions that an error came through held, and those of the errors before it.

    While an error is on its way out, it holds all of them.
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
