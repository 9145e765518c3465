"""A team of several processes, each with a whole model, over torch.distributed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from tfrnet.distributed.messages import End
from tfrnet.distributed.shard import shard
from tfrnet.distributed.team import R, T, Team, Tensors
from tfrnet.errors import InputError, TeamError, TfrnetError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class _Report:
    """What a process says of its task before it hands the result on."""

    shapes: tuple[tuple[tuple[int, ...], torch.dtype], ...] = ()
    error: str = ""
    is_input: bool = False


class ProcessTeam(Team):
    """The processes of torch.distributed's default group.

    `control` is a group for messages between the hosts, whatever devices the model is on.
    """

    def __init__(
        self,
        device: torch.device,
        control: dist.ProcessGroup | None = None,
        in_lockstep: bool = False,
    ) -> None:
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()
        self.device = device
        self.in_lockstep = in_lockstep
        self._control = control
        self._is_over = False

    def map(self, tasks: Sequence[T], work: Callable[[T], Tensors]) -> Iterator[Tensors]:
        """Yield the work of every task in the order of tasks, to every process.

        Processes take turns: of every `size` tasks each has one. A process without a task in the
        last turn does the turn's first one too and drops it: with weights that are spread over the
        processes every one has to take part in every pass.
        """
        for start in range(0, len(tasks), self.size):
            turn = tasks[start : start + self.size]
            mine = turn[self.rank] if self.rank < len(turn) else turn[0]
            result, report = self._attempt(mine, work)
            reports = self._gather(report)
            _refuse_failed(reports)
            for owner in range(len(turn)):
                parts = result if owner == self.rank else None
                yield self._from(owner, parts, reports[owner])

    def map_objects(self, tasks: Sequence[T], work: Callable[[T], R]) -> Iterator[R]:
        """Do as `map` does, with results of any kind that can be pickled."""
        for start in range(0, len(tasks), self.size):
            turn = tasks[start : start + self.size]
            result, report = None, _Report()
            if self.rank < len(turn):
                try:
                    result = work(turn[self.rank])
                except Exception as error:
                    report = _failure(error)
            found = self._gather((result, report))
            _refuse_failed([report for _, report in found])
            yield from (result for result, _ in found[: len(turn)])

    def _attempt(self, task: T, work: Callable[[T], Tensors]) -> tuple[Tensors, _Report]:
        try:
            result = tuple(part.detach().to(self.device).contiguous() for part in work(task))
        except Exception as error:
            return (), _failure(error)
        return result, _Report(tuple((tuple(part.shape), part.dtype) for part in result))

    def _from(self, owner: int, parts: Tensors | None, report: _Report) -> Tensors:
        """Return the result of one process, which all others receive."""
        if parts is None:
            parts = tuple(
                torch.empty(shape, dtype=dtype, device=self.device)
                for shape, dtype in report.shapes
            )
        with _lost_processes_named():
            for part in parts:
                dist.broadcast(part, owner)
        return parts

    def tell(self, message: Any) -> Any:
        """Hand a message of the leader to all; the others pass None. Return it."""
        if self._is_over:
            raise TeamError("the processes have parted after an error; start the command again")
        box = [message]
        with self.together(), _lost_processes_named():
            dist.broadcast_object_list(box, 0, self._control)
        return box[0]

    @contextmanager
    def together(self) -> Iterator[None]:
        """Do something that all processes do; an error in it is the end of the team.

        It may have left them at different places, where they would wait for each other in vain.
        """
        try:
            yield
        except BaseException:
            self._is_over = True
            raise

    def adapt(self, model: PreTrainedModel) -> None:
        """Spread the model's weights over the processes, if they are to be."""
        if self.in_lockstep:
            shard(model, self.device)

    @property
    def is_over(self) -> bool:
        """Whether an error has parted the processes."""
        return self._is_over

    def end(self) -> None:
        """Let the others go, if they still listen."""
        if self.leads and not self._is_over:
            self.tell(End())
        self._is_over = True

    def agree(self, facts: dict[str, str], error: Exception | None = None) -> None:
        """Raise unless all processes have the same facts and none an error."""
        text = " ".join(str(error).split()) if error else ""
        with self.together():
            _compare(self._gather((facts, text)))

    def _gather(self, mine: Any) -> list[Any]:
        found: list[Any] = [None] * self.size
        with _lost_processes_named():
            dist.all_gather_object(found, mine, self._control)
        return found


def _compare(found: Sequence[tuple[dict[str, str], str]]) -> None:
    """Raise what a process has said, or where the facts of two differ."""
    for rank, (_, said) in enumerate(found):
        if said:
            raise InputError(said if rank == 0 else f"process {rank}: {said}")
    first = found[0][0]
    for rank, (other, _) in enumerate(found):
        for name, value in first.items():
            if other[name] != value:
                raise InputError(
                    f"the processes differ in {name}: {value} on process 0, {other[name]} on "
                    f"process {rank}; nothing was changed"
                )


def _failure(error: Exception) -> _Report:
    text = " ".join(str(error).split()) or type(error).__name__
    return _Report(error=text, is_input=isinstance(error, TfrnetError))


def _refuse_failed(reports: Sequence[_Report]) -> None:
    """Raise in every process what one of them could not do."""
    for rank, report in enumerate(reports):
        if report.error:
            kind = InputError if report.is_input else TeamError
            raise kind(f"process {rank}: {report.error}; nothing was changed")


@contextmanager
def _lost_processes_named() -> Iterator[None]:
    """Say what it means when torch.distributed cannot reach a process any more."""
    try:
        yield
    except (RuntimeError, EOFError) as error:
        reason = " ".join(str(error).split())[:200]
        raise TeamError(
            f"another process was lost or does not answer ({reason}); what was committed before "
            "stands, nothing else was changed, and the same command goes on"
        ) from error
