"""Splitting a batch into smaller parts when it does not fit in memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TypeVar

from tfrnet.core.errors import InputError, TfrnetWarning
from tfrnet.models.device_memory import free_garbage, is_out_of_memory, library_error

T = TypeVar("T")
Work = Callable[[list[int]], T]


class FlattenedBatchError(InputError):
    """A projection got tokens without a batch dimension; only single examples can be scored."""


def in_parts(
    group: list[int], work: Work[T], last_resort: Work[T] | None = None, whole: bool = False
) -> list[T]:
    """Return the results of `work` on a group of examples, halved when it does not fit in memory.

    `last_resort` is for a single example that does not fit. Some mixtures of experts flatten the
    batch; their examples are then processed one by one. With `whole` the group is never split.
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
                    "one example alone does not fit into the device's memory; a smaller "
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
            f"a pass of {len(group)} examples does not fit into the device's memory, and with "
            "weights spread over processes it cannot be split; give a smaller --batch-size"
        ) from error


def _try(part: list[int], work: Work[T], done: list[T]) -> list[list[int]]:
    """Do the work, or return the parts to try next; a single example is returned as it is.

    The caller does the retrying: the failed pass frees its memory only once its error is gone.
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
        if name := library_error(error):
            warnings.warn(
                f"a pass of {len(part)} examples failed with {name}, probably for lack of memory; "
                "trying smaller passes",
                TfrnetWarning,
                stacklevel=2,
            )
        middle = len(part) // 2
        return [part[:middle], part[middle:]] if middle else [part]
    return []
