"""A team of several processes, each with a model, based on torch.distributed.

Processes communicate in two ways only. In `broadcast` the others wait for the leader's next
message. In `_gather` all exchange an envelope that says where each process is and what went wrong.
A process that fails before a `_gather` still sends its envelope, so all end with the same error,
which the first process reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist

from tfrnet.core.errors import InputError, TeamError, TfrnetError
from tfrnet.core.stage import told
from tfrnet.core.team import R, T, Team, Tensors
from tfrnet.distributed.messages import End
from tfrnet.distributed.shard import shard

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# The key under which a process that cannot take part in a `_gather` leaves the reason.
_FAILURE_KEY = "tfrnet/failed"


class _Envelope(NamedTuple):
    place: str
    content: Any = None
    error: str = ""
    is_input: bool = False


class ProcessTeam(Team):
    """The processes of torch.distributed's default group.

    `control` is a CPU group for messages, whatever device the model is on.
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

    @property
    def is_over(self) -> bool:
        """Whether the team has ended, by an error or normally."""
        return self._is_over

    # Sharing work

    def map(self, tasks: Sequence[T], work: Callable[[T], Tensors]) -> Iterator[Tensors]:
        """Yield the results of all tasks, in order, in every process.

        Of every `size` tasks each process does one. A process left without a task in the last round
        repeats the round's first one and drops the result: with sharded weights every process has
        to take part in every pass.
        """
        for start in told(range(0, len(tasks), self.size)):
            turn = tasks[start : start + self.size]
            mine = turn[self.rank] if self.rank < len(turn) else turn[0]
            result: Tensors = ()
            error: Exception | None = None
            try:
                result = tuple(part.detach().to(self.device).contiguous() for part in work(mine))
            except Exception as failure:
                if self.in_lockstep:
                    # The others are in the middle of a pass and cannot receive an envelope.
                    raise self._left(failure) from failure
                error = failure
            shapes = [(part.shape, part.dtype) for part in result]
            found = self._gather(f"task {start} of {len(tasks)}", shapes, error)
            for owner in range(len(turn)):
                yield self._from(owner, result, found[owner])

    def _from(
        self, owner: int, own: Tensors, shapes: Sequence[tuple[torch.Size, torch.dtype]]
    ) -> Tensors:
        """Return the result of one process, sent to all others."""
        parts = own
        if owner != self.rank:
            parts = tuple(torch.empty(s, dtype=d, device=self.device) for s, d in shapes)
        with self._lost_processes_named():
            for part in parts:
                dist.broadcast(part, owner)
        return parts

    def map_objects(self, tasks: Sequence[T], work: Callable[[T], R]) -> Iterator[R]:
        """Like `map`, for results of any type that can be pickled."""
        for start in told(range(0, len(tasks), self.size)):
            turn = tasks[start : start + self.size]
            result, error = None, None
            if self.rank < len(turn):
                try:
                    result = work(turn[self.rank])
                except Exception as failure:
                    error = failure
            found = self._gather(f"object {start} of {len(tasks)}", result, error)
            yield from found[: len(turn)]

    def adapt(self, model: PreTrainedModel) -> None:
        """Shard the model's weights over the processes, if the launcher asks for it."""
        if self.in_lockstep:
            shard(model, self.device)

    # Leading and following

    def broadcast(self, message: Any) -> Any:
        """Hand a message of the leader to all; the others pass None. Return it."""
        if self._is_over:
            raise TeamError("the processes lost contact after an error; start the command again")
        box = [message]
        with self._lost_processes_named():
            dist.broadcast_object_list(box, 0, self._control)
        return box[0]

    def end(self) -> None:
        """End the team; the leader tells the others to stop."""
        if self.leads and not self._is_over:
            with suppress(TeamError):  # a process that no longer listens has stopped already
                self.broadcast(End())
        self._is_over = True

    # Failing together

    @contextmanager
    def together(self) -> Iterator[None]:
        """Run a block that all processes run; an error in it ends the team."""
        try:
            yield
        except BaseException as error:
            if not self._is_over:
                text = "" if isinstance(error, Exception) else "interrupted"
                with suppress(TfrnetError):
                    self._gather("an error", None, TeamError(text) if text else error)
                self._is_over = True
                mark_agreed(error)
            raise

    def agree(self, facts: dict[str, str]) -> None:
        """Raise unless the facts are the same in all processes."""
        found = self._gather("facts", facts)
        for rank, other in enumerate(found):
            for name, value in found[0].items():
                if other.get(name) != value:
                    self._is_over = True
                    raise mark_agreed(
                        InputError(
                            f"the processes differ in {name}: {value} on process 0, "
                            f"{other.get(name)} on process {rank}; nothing was changed"
                        )
                    )

    def leaders(self, value: R) -> R:
        """Return the leader's value; all processes must call this at the same point."""
        first: R = self._gather("the leader's value", value if self.leads else None)[0]
        return first

    def _gather(self, place: str, content: Any, error: BaseException | None = None) -> list[Any]:
        """Return the contents of all processes; an error in one is raised in all."""
        mine = _Envelope(place, content)
        if error is not None:
            mine = _Envelope(place, None, _text(error), isinstance(error, TfrnetError))
        found: list[Any] = [None] * self.size
        with self._lost_processes_named():
            dist.all_gather_object(found, mine, self._control)
        for rank, envelope in enumerate(found):
            if envelope.error:
                self._is_over = True
                kind = InputError if envelope.is_input else TeamError
                who = "" if rank == 0 else f"process {rank}: "
                raise mark_agreed(kind(f"{who}{envelope.error}; nothing was changed")) from error
        if any(envelope.place != place for envelope in found):
            self._is_over = True
            places = ", ".join(f"{e.place} (process {rank})" for rank, e in enumerate(found))
            raise mark_agreed(
                TeamError(
                    f"the processes are doing different things: {places}; nothing was changed"
                )
            )
        return [envelope.content for envelope in found]

    def _left(self, error: Exception) -> Exception:
        """Store the reason why this process fails, unless another one has failed before it."""
        self._is_over = True
        if reason := _last_words():
            return _lost(reason)
        reason = f"process {self.rank}: {_text(error)}"
        with suppress(Exception):
            _store().set(_FAILURE_KEY, reason)
        return error if isinstance(error, TfrnetError) else TeamError(f"{reason}; nothing changed")

    @contextmanager
    def _lost_processes_named(self) -> Iterator[None]:
        """Turn torch.distributed's error for an unreachable process into a clear one."""
        try:
            yield
        except BaseException as error:
            self._is_over = True
            if not isinstance(error, (RuntimeError, EOFError)):
                raise
            raise _lost(_last_words() or " ".join(str(error).split())[:200]) from error


def _lost(reason: str) -> TeamError:
    return TeamError(
        f"another process was lost or does not answer ({reason}); what was committed before "
        "stands, nothing else was changed; run the same command again to continue"
    )


def mark_agreed(error: BaseException) -> BaseException:
    """Mark an error that every process raises, so that only one reports it."""
    error.agreed = True  # type: ignore[attr-defined]
    return error


def is_agreed(error: BaseException) -> bool:
    """Tell whether every process raises this error."""
    return bool(getattr(error, "agreed", False))


def _text(error: BaseException) -> str:
    text = " ".join(str(error).split()).removesuffix("; nothing was changed")
    return text or type(error).__name__


def _store() -> Any:
    return dist.distributed_c10d._get_default_store()


def _last_words() -> str:
    """Return the reason that a failed process has stored, if any."""
    with suppress(Exception):
        store = _store()
        if store.check([_FAILURE_KEY]):
            return str(store.get(_FAILURE_KEY).decode())
    return ""
