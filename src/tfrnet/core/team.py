"""The processes that work on one run. Alone there is one, which does everything itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import torch

if TYPE_CHECKING:
    from transformers import PreTrainedModel

T = TypeVar("T")
R = TypeVar("R")
Tensors = tuple[torch.Tensor, ...]


class Team:
    """A team of one, and what a team of several offers too (`tfrnet.distributed.processes`)."""

    rank = 0
    size = 1
    # Whether every process has to take part in every pass, as with weights spread over them.
    in_lockstep = False
    device = torch.device("cpu")

    @property
    def is_over(self) -> bool:
        """Whether an error has parted the processes."""
        return False

    @property
    def leads(self) -> bool:
        """Whether this is the process that reads data, writes the state and speaks."""
        return self.rank == 0

    def map(self, tasks: Sequence[T], work: Callable[[T], Tensors]) -> Iterator[Tensors]:
        """Yield the work of every task in the order of tasks, to every process.

        A task is done as a whole by one process, and what is added up afterwards is added in the
        same order by all: so results do not depend on how many processes there are.
        """
        for task in tasks:
            yield work(task)

    def map_objects(self, tasks: Sequence[T], work: Callable[[T], R]) -> Iterator[R]:
        """Do as `map` does, with results of any kind that can be pickled."""
        for task in tasks:
            yield work(task)

    def broadcast(self, message: Any) -> Any:
        """Hand a message of the leader to all; the others pass None. Return it."""
        return message

    @contextmanager
    def together(self) -> Iterator[None]:
        """Do something that all processes do; an error in it is the end of the team."""
        yield

    def adapt(self, model: PreTrainedModel) -> None:
        """Let a model that is loaded in every process do what the team needs of it."""

    def leaders(self, value: R) -> R:
        """Return the leader's value, where all processes have come to the same place."""
        return value

    def agree(self, facts: dict[str, str]) -> None:
        """Raise unless all processes have the same facts."""


SOLO = Team()
