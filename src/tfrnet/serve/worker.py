"""The thread that applies requests, one after another, while completions go on in another.

The ledger is the truth. Whatever moment a process dies at, the next one asks the ledger whether the
request in hand was applied, and goes on from there.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol

from tfrnet.core.errors import InputError, StateError
from tfrnet.data.requests import Request
from tfrnet.serve.queue import ConflictError, Entry, Queue, State
from tfrnet.serve.soundness import Soundness
from tfrnet.session import Session

# How long to wait before a state that could not be written is tried again.
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 60.0

_LAST_MOMENTS = 2.0

_DEAD = "requests are no longer worked on; the service has to be started again"

_UNSOUND = "the state failed a check, so nothing more is written; the service's log says why"

_REPAIRED = "it was applied or rejected before; a repair has lost its line of the ledger"

# Where processors are short, completions get about twice the time that the request in hand gets.
_NICE = 3

# Of what the ledger says of a request, this is told to whoever may read.
_TOLD = (
    *("outcome", "reason", "generation", "time", "method", "attempts"),
    *("forget_loss_before", "forget_loss_after", "guard_loss_before", "guard_loss_after"),
    "guard_groups",
    *("retain_loss_before", "suppressed_now", "recovered", "dormant", "capacity"),
    *("mask", "checked", "guard_loss_untouched", "drift_limit", "holdout", "audit"),
    *("seconds", "state_before", "state_after", "hash"),
)


class Abandoned(BaseException):
    """Work on a request is left off; it must pass through all `except Exception`."""


class Watcher(Protocol):
    """Who is told what the worker does."""

    def stage(self, request: str, stage: str) -> None:
        """Work on a request has come to a stage."""

    def committed(self, generation: int, state: Any) -> None:
        """A new generation is on the disk; returns when it is in force."""

    def applied(self, outcome: dict[str, Any]) -> None:
        """A request was accepted or rejected."""

    def failed(self, request: str, error: BaseException) -> None:
        """Something went wrong."""


class Worker:
    """Works off the queue in a thread of its own."""

    def __init__(self, session: Session, queue: Queue, watcher: Watcher) -> None:
        self._session = session
        self._queue = queue
        self._watcher = watcher
        self._changed = threading.Condition()
        self._tasks: list[tuple[Callable[[], Any], Future[Any]]] = []
        self._stopping = False
        self._abandon = threading.Event()
        self._wait = 0.0
        self._patience = _FIRST_WAIT
        self._has_lost_track = False  # of the request in hand
        self._problem = ""
        settle(session, queue)
        self._soundness = Soundness(session.store)
        self._thread = threading.Thread(target=self._run, name="requests", daemon=True)

    @property
    def problem(self) -> str:
        """What keeps it from working, for whoever asks if it is ready; or nothing."""
        if self.is_at_rest and not self._stopping:
            return _DEAD
        return _UNSOUND if self._soundness.is_in_doubt else self._problem

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wake(self) -> None:
        """Say that there is something to do."""
        with self._changed:
            self._changed.notify()

    def doubt(self) -> None:
        """Write nothing more until the state has passed a check."""
        self._soundness.doubt()
        self.wake()

    def rollback(self, generation: int) -> Future[int]:
        """Return to a kept generation, after the request in hand."""

        def task() -> int:
            self._soundness.check()
            try:
                self._session.rollback(generation)
            finally:
                self._soundness.take_note()
            self._take_over()
            return self._session.store.generation

        done: Future[int] = Future()
        with self._changed:
            self._tasks.append((task, done))
            if self._stopping:
                self._refuse_tasks()
            self._changed.notify()
        return done

    @property
    def is_at_rest(self) -> bool:
        """Whether its thread has ended, or never begun."""
        return not self._thread.is_alive()

    def begin_to_stop(self) -> None:
        """Begin no other request."""
        with self._changed:
            self._stopping = True
            self._changed.notify()

    def stop(self, seconds: float) -> None:
        """Begin no other request; leave off the one in hand if it takes longer than this."""
        self.begin_to_stop()
        self._thread.join(seconds)
        self._abandon.set()
        # A long pass in hand is given up with the process; the ledger knows nothing of it.
        self._thread.join(_LAST_MOMENTS)

    def _run(self) -> None:
        _give_way()
        while True:
            try:
                if not self._turn():
                    return
            except Exception as error:
                # Often a queue that cannot be written, so what it says may be behind the ledger.
                self._watcher.failed("", error)
                self._has_lost_track = True
                self._hold_up("requests cannot be worked on; the service's log says why")

    def _turn(self) -> bool:
        """Wait for something to do and do it; tell whether to go on."""
        with self._changed:
            while not self._stopping and not self._tasks and not self._may_work():
                self._changed.wait(self._wait or None)
                self._wait = 0.0
            if self._stopping:
                self._refuse_tasks()
                return False
            tasks, self._tasks = self._tasks, []
        for task, done in tasks:
            _do(task, done)
        if tasks:
            return True
        if self._soundness.is_in_doubt:
            self._soundness.check()
        elif entry := self._queue.next():
            self._work(entry)
        return True

    def _may_work(self) -> bool:
        if self._wait:
            return False
        if self._soundness.is_in_doubt:
            return True  # to check it
        if self._has_lost_track:
            self._take_over()
            settle(self._session, self._queue)
            self._has_lost_track, self._problem = False, ""
        if self._queue.next():
            return True
        # What was to be tried again was cancelled, or has ended in another way.
        self._problem, self._patience = "", _FIRST_WAIT
        return False

    def _hold_up(self, problem: str) -> None:
        """Try again after a while, and after a longer one if that does not help."""
        self._problem = problem
        self._wait = self._patience
        self._patience = min(2 * self._patience, _LONGEST_WAIT)

    def _refuse_tasks(self) -> None:
        for _, done in self._tasks:
            done.set_exception(StateError("the service is stopping"))
        self._tasks = []

    def _work(self, entry: Entry) -> None:
        """Apply one request, and say how it ended; what cannot be written now is tried again."""
        self._soundness.check()
        try:
            entry = self._queue.begin(entry.id, self._session.store.lines)
        except ConflictError:
            return  # it was cancelled at the last moment
        try:
            request = self._queue.words(entry)
            standing = self._standing(request)
            if not standing:
                self._forget(entry, request)
        except Abandoned:
            self._queue.put_back(entry.id, "the service was stopped")
        except InputError as error:
            self._queue.end(entry.id, "failed", str(error), None)
            self._watcher.failed(entry.id, error)
        except StateError as error:
            self._stall(entry, error)
        except sqlite3.Error:
            raise
        except Exception as error:
            self._watcher.failed(entry.id, error)
            if told := said_since(self._session, entry):
                self._finish(entry, told)
            else:
                # What it says could repeat words of the request.
                self._queue.end(entry.id, "failed", f"unexpected {type(error).__name__}", None)
        else:
            self._problem, self._patience = "", _FIRST_WAIT
            self._conclude(entry, standing)

    def _standing(self, request: Request) -> str:
        """Return how a request ended by the command line or before this queue was there, if so."""
        if self._session.is_applied(request):
            return "accepted"
        return "rejected" if self._session.was_rejected(request) else ""

    def _forget(self, entry: Entry, request: Request) -> None:
        received = datetime.fromtimestamp(entry.received, UTC).isoformat(timespec="seconds")
        try:
            self._session.forget(
                request, lambda stage: self._stage(entry.id, stage), received=received
            )
        finally:
            self._soundness.take_note()

    def _stage(self, name: str, stage: str) -> None:
        if self._abandon.is_set():
            raise Abandoned
        self._soundness.glance()
        self._watcher.stage(name, stage)

    def _conclude(self, entry: Entry, standing: str) -> None:
        """End a request that has just been worked out, or that stands in the ledger already."""
        history = self._session.store.history
        # The queue of an earlier version may have a digest that was made in another way.
        digest = history.applied.get(entry.id) or history.rejected.get(entry.id, entry.digest)
        entry = replace(entry, digest=digest)
        if standing:
            told = said_ever(self._session, entry, standing)
        else:
            told = said_since(self._session, entry)
        if told:
            self._finish(entry, told)
        elif standing:
            self._take_over()
            self._queue.end(entry.id, _state_of(standing), _REPAIRED, None)
        else:
            raise StateError("the ledger does not say what became of a request")

    def _finish(self, entry: Entry, told: dict[str, Any]) -> None:
        self._take_over()
        # Last: whoever reads that a request has ended finds everything else done.
        self._watcher.applied(told)
        self._queue.end(entry.id, *_result(told))

    def _take_over(self) -> None:
        self._watcher.committed(self._session.store.generation, self._session.unlearner.state)

    def _stall(self, entry: Entry, error: StateError) -> None:
        """Wait with a request whose state cannot be written; it may have been committed."""
        self._watcher.failed(entry.id, error)
        self._hold_up("the state cannot be written")
        if told := said_since(self._session, entry):
            self._finish(entry, told)
        else:
            self._queue.put_back(entry.id, self.problem)


def _give_way() -> None:
    """Let this thread, and those that compute for it, wait for others: somebody reads along there.

    Linux has a priority for each thread; elsewhere all stay alike.
    """
    if sys.platform == "linux":
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + _NICE)


def _do(task: Callable[[], Any], done: Future[Any]) -> None:
    try:
        done.set_result(task())
    except BaseException as error:
        done.set_exception(error)


def said_since(session: Session, entry: Entry) -> dict[str, Any] | None:
    """Return what the ledger says of a request since work on it began, if anything."""
    return _newest(_lines_of(session, entry, entry.ledger_lines or 0))


def said_ever(session: Session, entry: Entry, outcome: str) -> dict[str, Any] | None:
    """Return what the ledger says of a request where it ended so; nothing if that line is lost.

    It may have ended otherwise since, and a rollback have undone that.
    """
    lines = _lines_of(session, entry, 0)
    return _newest([told for told in lines if told["outcome"] == outcome])


def _lines_of(session: Session, entry: Entry, before: int) -> list[dict[str, Any]]:
    """Return what the ledger says of a request after so many lines, oldest first."""
    return [
        {name: found[name] for name in _TOLD if name in found} | {"line": line}
        for line, found in enumerate(session.store.entries_after(before), before + 1)
        if (found.get("id"), found.get("request_digest")) == (entry.id, entry.digest)
    ]


def _newest(lines: list[dict[str, Any]]) -> dict[str, Any] | None:
    return lines[-1] if lines else None


def _state_of(outcome: str) -> State:
    return "completed" if outcome == "accepted" else "rejected"


def _result(told: dict[str, Any]) -> tuple[State, str, dict[str, Any]]:
    return _state_of(told["outcome"]), told["reason"], told


def settle(session: Session, queue: Queue) -> None:
    """Find out what became of requests that a process which died had in hand."""
    for entry in queue.under_way():
        if told := said_since(session, entry):
            queue.end(entry.id, *_result(told))
        else:
            queue.put_back(entry.id, "the service ended while it worked on it")
