"""The processes that share one run; by default a single one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from tfrnet.core.stage import told

if TYPE_CHECKING:
    from transformers import PreTrainedModel

T = TypeVar("T")
R = TypeVar("R")
Tensors = tuple[torch.Tensor, ...]


class Team:
    """A single process; `tfrnet.distributed.processes` has the team of several."""

    rank = 0
    size = 1
    # Whether every process must take part in every pass, as with FSDP.
    in_lockstep = False
    device = torch.device("cpu")

    @property
    def is_over(self) -> bool:
        """Whether an error has ended the team."""
        return False

    @property
    def leads(self) -> bool:
        """Whether this process reads data, writes the state and prints."""
        return self.rank == 0

    def map(self, tasks: Sequence[T], work: Callable[[T], Tensors]) -> Iterator[Tensors]:
        """Yield the result of every task, in order, in every process.

        Each task is done by one process, and all add results up in the same order, so results do
        not depend on the number of processes.
        """
        for task in told(tasks):
            yield work(task)

    def map_objects(self, tasks: Sequence[T], work: Callable[[T], R]) -> Iterator[R]:
        """Like `map`, for results of any type that can be pickled."""
        for task in told(tasks):
            yield work(task)

    def broadcast(self, message: Any) -> Any:
        """Send the leader's message to all processes and return it; the others pass None."""
        return message

    @contextmanager
    def together(self) -> Iterator[None]:
        """Run a block that all processes run; an error in it ends the team."""
        yield

    def adapt(self, model: PreTrainedModel) -> None:
        """Prepare a model that every process has loaded, for example by sharding it."""

    def leaders(self, value: R) -> R:
        """Return the leader's value; all processes must call this."""
        return value

    def agree(self, facts: dict[str, str]) -> None:
        """Raise unless all processes report the same facts."""


SOLO = Team()
