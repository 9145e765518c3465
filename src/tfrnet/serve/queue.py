"""The durable queue of deletion requests: their states, their way, and their words while they wait.

The ledger says what was applied; the queue says what is still to be done.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tfrnet.core.errors import InputError, StateError
from tfrnet.data.requests import Request, parse_request
from tfrnet.serve.database import Database
from tfrnet.serve.vault import Vault

State = Literal["pending", "in_progress", "completed", "rejected", "failed", "cancelled"]
STATES: tuple[State, ...] = (
    *("pending", "in_progress", "completed"),
    *("rejected", "failed", "cancelled"),
)
Approval = Literal["not_needed", "waiting", "given", "denied"]

_HELD = "state = 'pending' AND approval = 'waiting'"
_TO_DO = "state = 'pending' AND approval != 'waiting'"


class ConflictError(Exception):
    """A request is not in a state in which this can be done to it."""


class QueueFullError(Exception):
    """More requests are waiting than may."""


class UnknownRequestError(Exception):
    """There is no request with this id."""


@dataclass(frozen=True)
class Entry:
    """A request in the queue, without its words."""

    number: int
    id: str
    state: State
    approval: Approval
    digest: str
    examples: int
    received: float
    due: float
    started: float | None
    ended: float | None
    ledger_lines: int | None
    reason: str
    outcome: Mapping[str, Any] | None
    callbacks: tuple[str, ...]
    submitted_by: str
    decided_by: str

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will be done about it."""
        return self.state not in ("pending", "in_progress")


@dataclass(frozen=True)
class Submission:
    """What a client sends."""

    request: Request
    digest: str  # keyed, of the examples
    body: Any  # all that was sent, as plain JSON values
    due: float
    callbacks: tuple[str, ...] = ()
    by: str = ""


@dataclass(frozen=True)
class Event:
    """Something that happened to a request."""

    number: int
    request: str
    time: float
    name: str
    facts: Mapping[str, Any]


class Queue:
    """Requests in the order in which they came.

    `announce` is called with every event after it is on the disk.
    """

    def __init__(
        self,
        database: Database,
        vault: Vault,
        needs_approval: bool = False,
        most: int = 10_000,
        announce: Callable[[Event], None] = lambda event: None,
    ) -> None:
        self._database = database
        self._vault = vault
        self._needs_approval = needs_approval
        self._most = most
        self._announce = announce

    def refuse_other_state(self, identity: str, is_its: Callable[[str, Request], bool]) -> None:
        """Raise if the queue was made for another state than the one with this identity.

        A queue of before does not say whose it is, but what waits in it may: `is_its` tells whether
        a digest of a request is the state's. Then it takes on the identity.
        """
        owner = self._database.owner
        waiting = [] if owner else self._unended()
        if (owner or identity) != identity or not all(
            is_its(entry.digest, self.words(entry)) for entry in waiting
        ):
            raise StateError(
                f"the queue in {self._database.folder} is that of another state; give this state's "
                "own, or a new folder, with --queue"
            )
        if not owner:
            self._database.take_owner(identity)

    def refuse_unreadable(self) -> None:
        """Raise if the words of a request that has not ended were encrypted with another key.

        Found out when its turn comes, it would hold up all that wait behind it.
        """
        for entry in self._unended():
            self._unlocked(entry)

    # Reading

    def find(self, name: str) -> Entry:
        """Return a request by its id."""
        rows = self._database.read("SELECT * FROM requests WHERE id = ?", (name,))
        if not rows:
            raise UnknownRequestError
        return _entry(rows[0])

    def page(self, state: State | None, after: int, count: int) -> list[Entry]:
        """Return requests in their order, from the one after a number on."""
        where, values = ("state = ? AND ", (state,)) if state else ("", ())
        rows = self._database.read(
            f"SELECT * FROM requests WHERE {where}number > ? ORDER BY number LIMIT ?",
            (*values, after, count),
        )
        return [_entry(row) for row in rows]

    def newest(self) -> str | None:
        """Return the id of the request that came last."""
        rows = self._database.read("SELECT id FROM requests ORDER BY number DESC LIMIT 1")
        return rows[0]["id"] if rows else None

    def counts(self) -> dict[str, int]:
        """Return how many requests are in each state."""
        rows = self._database.read("SELECT state, COUNT(*) AS n FROM requests GROUP BY state")
        return dict.fromkeys(STATES, 0) | {row["state"]: row["n"] for row in rows}

    def overdue(self) -> int:
        """Return how many requests are past their deadline and not done."""
        rows = self._database.read(
            "SELECT COUNT(*) AS n FROM requests WHERE state IN ('pending', 'in_progress') "
            "AND due < ?",
            (time.time(),),
        )
        return int(rows[0]["n"])

    def ahead_of(self, entry: Entry) -> int:
        """Return how many requests come before a pending one."""
        rows = self._database.read(
            "SELECT COUNT(*) AS n FROM requests WHERE state IN ('pending', 'in_progress') "
            "AND number < ?",
            (entry.number,),
        )
        return int(rows[0]["n"])

    def events(self, name: str | None, after: int = 0) -> list[Event]:
        """Return what happened to a request, or to all, after an event: the next thousand."""
        where, values = ("request = ? AND ", (name,)) if name else ("", ())
        rows = self._database.read(
            f"SELECT * FROM events WHERE {where}number > ? ORDER BY number LIMIT 1000",
            (*values, after),
        )
        return [_event(row) for row in rows]

    def next(self) -> Entry | None:
        """Return the oldest request that may be worked on."""
        rows = self._database.read(f"SELECT * FROM requests WHERE {_TO_DO} ORDER BY number LIMIT 1")
        return _entry(rows[0]) if rows else None

    def _unended(self) -> list[Entry]:
        rows = self._database.read(
            "SELECT * FROM requests WHERE state IN ('pending', 'in_progress')"
        )
        return [_entry(row) for row in rows]

    def under_way(self) -> list[Entry]:
        """Return the requests that a process was working on."""
        rows = self._database.read("SELECT * FROM requests WHERE state = 'in_progress'")
        return [_entry(row) for row in rows]

    def words(self, entry: Entry) -> Request:
        """Return a request that has not ended, with its words."""
        return parse_request(self._unlocked(entry), f"request {entry.id!r}")

    def _unlocked(self, entry: Entry) -> Any:
        rows = self._database.read("SELECT words FROM requests WHERE id = ?", (entry.id,))
        if not rows or rows[0]["words"] is None:
            raise UnknownRequestError
        return self._vault.unlock(rows[0]["words"], entry.id)

    # Submitting

    def submit(self, submission: Submission, again: Callable[[Entry], bool]) -> tuple[Entry, bool]:
        """Put a request on the disk; return it, and whether it is new.

        The same again gives the same answer, unless `again` says that an ended one may be tried
        once more. Other words under a known id are a conflict.
        """
        name = submission.request.id
        body = self._vault.digest(submission.body)
        try:
            known = self.find(name)
        except UnknownRequestError:
            try:
                return self._insert(submission, body), True
            except sqlite3.IntegrityError:  # another thread was faster
                return self.submit(submission, again)
        rows = self._database.read("SELECT body_digest FROM requests WHERE id = ?", (name,))
        if rows[0]["body_digest"] != body:
            raise ConflictError(
                "a request with this id was already sent with other content; "
                "give the new one another id"
            )
        if not (known.has_ended and again(known)):
            return known, False
        return self._requeue(known, submission), True

    def _insert(self, submission: Submission, body: str) -> Entry:
        name = submission.request.id
        approval = "waiting" if self._needs_approval else "not_needed"
        with self._database.transaction() as connection:
            self._refuse_more(connection)
            connection.execute(
                "INSERT INTO requests (id, state, approval, body_digest, digest, words, examples, "
                "received, due, callbacks, submitted_by) VALUES (?, 'pending', ?, ?, ?, ?, ?, ?, "
                "?, ?, ?)",
                (
                    name,
                    approval,
                    body,
                    submission.digest,
                    self._vault.lock(submission.request.to_dict(), name),
                    len(submission.request.examples),
                    time.time(),
                    submission.due,
                    json.dumps(submission.callbacks),
                    submission.by,
                ),
            )
            event = self._record(connection, name, "queued", {"approval": approval})
        self._announce(event)
        return self.find(name)

    def _requeue(self, known: Entry, submission: Submission) -> Entry:
        """Put an ended request at the end of the queue, with its words."""
        words = self._vault.lock(submission.request.to_dict(), known.id)
        with self._database.transaction() as connection:
            self._refuse_more(connection)
            connection.execute(
                "UPDATE requests SET number = (SELECT MAX(number) + 1 FROM requests), "
                "state = 'pending', approval = ?, words = ?, received = ?, due = ?, "
                "started = NULL, ended = NULL, reason = '', outcome = NULL, submitted_by = ?, "
                "decided_by = '' WHERE id = ?",
                (
                    "waiting" if self._needs_approval else "not_needed",
                    words,
                    time.time(),
                    submission.due,
                    submission.by,
                    known.id,
                ),
            )
            event = self._record(connection, known.id, "queued", {"again": True})
        self._announce(event)
        return self.find(known.id)

    def _refuse_more(self, connection: sqlite3.Connection) -> None:
        (waiting,) = connection.execute(
            "SELECT COUNT(*) FROM requests WHERE state = 'pending'"
        ).fetchone()
        if waiting >= self._most:
            raise QueueFullError

    # A request's way

    def approve(self, name: str, by: str | None) -> Entry:
        """Let a request be worked on. Without tokens it is not known by whom, so by None."""
        try:
            # Asked in the same step: its sender may have changed since somebody looked.
            return self._move(
                name,
                "approved",
                f"{_HELD} AND submitted_by IS NOT ?",
                values=(by,),
                approval="given",
                decided_by=by or "",
            )
        except ConflictError:
            if self.find(name).submitted_by != by:
                raise
            raise ConflictError(
                "a request must be approved by somebody other than its sender"
            ) from None

    def deny(self, name: str, by: str, reason: str) -> Entry:
        """End a request that waits for approval, and destroy its words."""
        return self._end(
            name,
            "cancelled",
            _HELD,
            approval="denied",
            decided_by=by,
            reason=reason or "denied",
        )

    def cancel(self, name: str, by: str) -> Entry:
        """End a request that nobody works on yet, and destroy its words."""
        return self._end(
            name, "cancelled", "state = 'pending'", decided_by=by, reason="cancelled on request"
        )

    def begin(self, name: str, ledger_lines: int) -> Entry:
        """Note that work on a request begins."""
        return self._move(
            name,
            "started",
            _TO_DO,
            state="in_progress",
            started=time.time(),
            ledger_lines=ledger_lines,
        )

    def put_back(self, name: str, why: str) -> Entry:
        """Note that work on a request was left off, without a trace; it is first in line again."""
        return self._move(
            name, "put_back", "state = 'in_progress'", {"why": why}, state="pending", started=None
        )

    def end(self, name: str, state: State, reason: str, outcome: Mapping[str, Any] | None) -> Entry:
        """Note how a request ended, and destroy its words."""
        text = None if outcome is None else json.dumps(outcome)
        return self._end(
            name, state, "state IN ('pending', 'in_progress')", reason=reason, outcome=text
        )

    def _end(self, name: str, state: State, condition: str, **changes: Any) -> Entry:
        entry = self._move(
            name, state, condition, state=state, ended=time.time(), words=None, **changes
        )
        self._database.forget_old_pages()
        return entry

    def _move(
        self,
        name: str,
        event_name: str,
        condition: str,
        facts: Mapping[str, Any] | None = None,
        values: tuple[object, ...] = (),
        **changes: Any,
    ) -> Entry:
        """Change a request that fulfils a condition, with an event, and tell who asked to know.

        `values` are those of the condition.
        """
        columns = ", ".join(f"{column} = ?" for column in changes)
        with self._database.transaction() as connection:
            done = connection.execute(
                f"UPDATE requests SET {columns} WHERE id = ? AND {condition}",
                (*changes.values(), name, *values),
            )
            if done.rowcount == 0:
                self._refuse(connection, name)
            row = connection.execute("SELECT * FROM requests WHERE id = ?", (name,)).fetchone()
            entry = _entry(row)
            said = dict(facts or {}) | ({"reason": entry.reason} if entry.reason else {})
            event = self._record(connection, name, event_name, said)
            if entry.has_ended:
                _owe_deliveries(connection, entry, event)
        self._announce(event)
        return entry

    def _record(
        self, connection: sqlite3.Connection, name: str, event: str, facts: Mapping[str, Any]
    ) -> Event:
        now = time.time()
        number = connection.execute(
            "INSERT INTO events (request, time, name, facts) VALUES (?, ?, ?, ?)",
            (name, now, event, json.dumps(facts)),
        ).lastrowid
        return Event(number or 0, name, now, event, facts)

    @staticmethod
    def _refuse(connection: sqlite3.Connection, name: str) -> None:
        row = connection.execute("SELECT * FROM requests WHERE id = ?", (name,)).fetchone()
        if row is None:
            raise UnknownRequestError
        is_held = row["state"] == "pending" and row["approval"] == "waiting"
        waits = ", waiting for approval" if is_held else ""
        raise ConflictError(f"the request is {row['state']}{waits}, so this cannot be done now")


def _owe_deliveries(connection: sqlite3.Connection, entry: Entry, event: Event) -> None:
    body = {"id": entry.id, "state": entry.state, "reason": entry.reason, "time": event.time}
    connection.executemany(
        "INSERT INTO deliveries (request, url, body, next) VALUES (?, ?, ?, ?)",
        [(entry.id, url, json.dumps(body), event.time) for url in entry.callbacks],
    )


def refuse_ambiguous_id(name: str, endings: Sequence[str]) -> None:
    """Raise if an id could not be told apart from the address of something done to it."""
    if any(name.endswith(f"/{ending}") for ending in endings) or name != name.strip():
        raise InputError(
            f"an id must not end with /{', /'.join(endings)}, nor begin or end with a space"
        )
    if any(part in ("", ".", "..") for part in name.split("/")):
        # Clients and proxies would ask for another address.
        raise InputError("an id must not hold //, /./ or /../, nor begin or end with such a part")


def _entry(row: sqlite3.Row) -> Entry:
    values = {name: row[name] for name in Entry.__dataclass_fields__}
    values["outcome"] = None if row["outcome"] is None else json.loads(row["outcome"])
    values["callbacks"] = tuple(json.loads(row["callbacks"]))
    return Entry(**values)


def _event(row: sqlite3.Row) -> Event:
    return Event(row["number"], row["request"], row["time"], row["name"], json.loads(row["facts"]))
