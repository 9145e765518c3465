"""Work on a group of examples that goes on in smaller parts where the whole is too much."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tfrnet.core.errors import InputError
from tfrnet.models.device_memory import free_garbage, is_out_of_memory

T = TypeVar("T")
Work = Callable[[list[int]], T]


class FlattenedBatchError(InputError):
    """A projection saw tokens without their batch dimension; only single examples can be scored."""


def in_parts(
    group: list[int], work: Work[T], last_resort: Work[T] | None = None, whole: bool = False
) -> list[T]:
    """Return the work on a group of examples, in halves where the memory does not hold them all.

    `last_resort` is for a single example that is too much by itself. Some mixtures of experts route
    tokens out of their batch; one example at a time they can still be told apart. With
    `whole` the group is never split.
    """
    if whole:
        return [_all_at_once(group, work)]
    pending = [group]
    done: list[T] = []
    while pending:
        part = pending.pop(0)
        smaller = _try(part, work, done)
        if smaller == [part]:
            free_garbage()
            if last_resort is None or _try(part, last_resort, done):
                raise InputError(
                    "one example alone is too much for the memory of the device; a smaller "
                    "max_length, bfloat16 or a device map may help"
                )
            continue
        if smaller:
            free_garbage()
        pending = smaller + pending
    return done


def _all_at_once(group: list[int], work: Work[T]) -> T:
    try:
        return work(group)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise InputError(
            f"{len(group)} examples in a pass are too much for the memory of the device, and a "
            "pass is not split where the weights are spread over processes; give a smaller "
            "--batch-size"
        ) from error


def _try(part: list[int], work: Work[T], done: list[T]) -> list[list[int]]:
    """Do the work, or return what to try instead: smaller parts, or the part itself if it is one.

    What the failed pass held is free only after its error is gone, so nothing is tried in here.
    """
    try:
        done.append(work(part))
    except FlattenedBatchError:
        if len(part) == 1:
            raise
        return [[i] for i in part]
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        middle = len(part) // 2
        return [part[:middle], part[middle:]] if middle else [part]
    return []
