"""The service's own file: what is accepted is on the disk before it is answered."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tfrnet.core import files
from tfrnet.core.errors import StateError
from tfrnet.core.lock import FolderLock

FORMAT = 1

_TABLES = """
CREATE TABLE requests (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL,
    approval TEXT NOT NULL,
    body_digest TEXT NOT NULL,      -- keyed, of all that was sent
    digest TEXT NOT NULL,           -- keyed, of the examples, as in the ledger
    words BLOB,                     -- encrypted; none once the request has ended
    examples INTEGER NOT NULL,
    received REAL NOT NULL,
    due REAL NOT NULL,
    started REAL,
    ended REAL,
    ledger_lines INTEGER,           -- of the ledger when work on it began
    reason TEXT NOT NULL DEFAULT '',
    outcome TEXT,
    callbacks TEXT NOT NULL,
    submitted_by TEXT NOT NULL,
    decided_by TEXT NOT NULL DEFAULT ''
);
CREATE INDEX by_state ON requests (state, approval, number);
CREATE TABLE events (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    request TEXT NOT NULL,
    time REAL NOT NULL,
    name TEXT NOT NULL,
    facts TEXT NOT NULL
);
CREATE INDEX by_request ON events (request, number);
CREATE TABLE deliveries (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    request TEXT NOT NULL,
    url TEXT NOT NULL,
    body TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    next REAL NOT NULL,
    state TEXT NOT NULL DEFAULT 'waiting'
);
CREATE INDEX by_time ON deliveries (state, next);
"""
# One row once it is known whose queue this is. Queues of before have no such table.
_OWNER = "CREATE TABLE IF NOT EXISTS owner (identity TEXT NOT NULL)"
# One row once there is a command to run after commits: the last generation that it was run for.
_COMMANDED = """CREATE TABLE IF NOT EXISTS commanded (
    one INTEGER PRIMARY KEY CHECK (one = 1), generation INTEGER NOT NULL
)"""


class Database:
    """One connection for all threads, one transaction at a time, one process at a time."""

    def __init__(self, path: Path) -> None:
        files.make_folder(path.parent, files.PRIVATE_FOLDER)
        # A folder of the operator's keeps its mode.
        self.folder = path.parent
        self.is_open_to_others = bool(path.parent.stat().st_mode & files.OTHERS)
        self._lock = threading.RLock()
        self._folder = FolderLock(path.parent)
        try:
            _make_private(path)
            self._connection = sqlite3.connect(
                path, check_same_thread=False, isolation_level=None, timeout=10
            )
            self._connection.row_factory = sqlite3.Row
            for setting in ("journal_mode=WAL", "synchronous=FULL", "secure_delete=ON"):
                self._connection.execute(f"PRAGMA {setting}")
            self._prepare(path)
            # A process that was killed may have left its log.
            self.forget_old_pages()
        except sqlite3.DatabaseError as error:
            self._folder.release()
            raise StateError(f"{path} cannot be used as a queue: {error}") from None
        except BaseException:
            self._folder.release()
            raise

    @property
    def owner(self) -> str:
        """The identity of the state that the queue was made for; empty where it is not said."""
        with self._lock:
            row = self._connection.execute("SELECT identity FROM owner").fetchone()
        return str(row["identity"]) if row else ""

    def take_owner(self, identity: str) -> None:
        """Note which state the queue is for."""
        with self.transaction() as connection:
            connection.execute("INSERT INTO owner VALUES (?)", (identity,))

    @property
    def commanded(self) -> int | None:
        """The last generation that the command after commits was run for, with success."""
        rows = self.read("SELECT generation FROM commanded")
        return int(rows[0]["generation"]) if rows else None

    def note_commanded(self, generation: int) -> None:
        """Note that the command was run for a generation, or need not be."""
        with self.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO commanded VALUES (1, ?)", (generation,))

    def _prepare(self, path: Path) -> None:
        (found,) = self._connection.execute("PRAGMA user_version").fetchone()
        if found not in (0, FORMAT):
            raise StateError(
                f"{path} has queue format {found}, and this version of tfrnet reads format "
                f"{FORMAT}; use the version that wrote it"
            )
        if not found:
            self._connection.executescript(
                f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version={FORMAT}; COMMIT;"
            )
        self._connection.execute(_OWNER)
        self._connection.execute(_COMMANDED)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Write all of a block, durably, or nothing."""
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def read(self, query: str, values: tuple[object, ...] = ()) -> list[sqlite3.Row]:
        """Return the rows of a query."""
        with self._lock:
            return self._connection.execute(query, values).fetchall()

    def forget_old_pages(self) -> None:
        """Empty the log that still holds what was overwritten."""
        with self._lock:
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()
            self._folder.release()


def _make_private(path: Path) -> None:
    """Make the file, and the logs that SQLite puts beside it with the same mode, its owner's."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, files.PRIVATE))
    for each in (path, *(path.with_name(f"{path.name}-{log}") for log in ("wal", "shm"))):
        if each.exists() and each.stat().st_mode & files.OTHERS:
            each.chmod(files.PRIVATE)
