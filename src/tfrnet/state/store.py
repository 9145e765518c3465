"""A state on disk that a power cut cannot break.

One request is one commit, in this order: the new generation (temporary file, fsync, rename, fsync
of the folder), a line in the ledger (append, fsync), the pointer (like the generation). The
ledger's line is the moment of truth. A generation without a line is not yet; a line that the
pointer does not know yet is carried over when the state is next opened.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors

from tfrnet.core import files
from tfrnet.core.errors import StateError
from tfrnet.core.lock import FolderLock
from tfrnet.core.tensors import State, TensorState, tensors_file
from tfrnet.state import ledger
from tfrnet.state.history import History
from tfrnet.state.layout import Layout
from tfrnet.state.manifest import FORMAT, Manifest

DEFAULT_KEEP = 20


class StateStore:
    """One state folder. `StateStore.open` for an existing one, `StateStore.create` for a new one.

    `repairs` says what an interrupted commit had left and what was done about it.
    """

    def __init__(self, folder: Path, lock: FolderLock | None) -> None:
        self.layout = Layout(folder)
        self.repairs: list[str] = []
        # Whether a commit was cut off, or is going on in another process.
        self.unfinished = False
        self._lock = lock
        # Set while a commit is under way; memory may then be behind the disk.
        self._in_doubt = False
        manifest = self.layout.manifest.read_bytes()
        self.manifest = Manifest.from_bytes(manifest, self.layout.manifest)
        self._manifest_digest = _digest(manifest)
        # Of the ledger itself no more is kept in memory: it becomes long.
        self.lines, self._head, self._key_digest = 0, "", ""
        self.history = History()
        self._read(repair=lock is not None)

    # Opening and making

    @staticmethod
    def exists(folder: Path) -> bool:
        """Tell whether a folder holds a state."""
        return Layout(folder).manifest.is_file()

    @classmethod
    def open(cls, folder: Path, write: bool = False) -> StateStore:
        """Open a state; for writing it is locked and an interrupted commit is put right."""
        if not cls.exists(folder):
            _refuse_headless(Layout(folder))
            raise StateError(f"{folder} holds no state (no manifest.json)")
        with _file_errors(folder, "opened"):
            lock = FolderLock(folder) if write else None
            try:
                return cls(folder, lock)
            except BaseException:
                if lock:
                    lock.release()
                raise

    @classmethod
    def create(
        cls, folder: Path, make_manifest: Callable[[bytes], Manifest], state: State
    ) -> StateStore:
        """Make a new state in an empty folder. The manifest is written last and completes it.

        `make_manifest` is given the state's secret key.
        """
        layout = Layout(folder)
        with _file_errors(folder, "made"):
            if unexpected := layout.unexpected_files():
                raise StateError(
                    f"{folder} holds other files ({unexpected[0]}); a new state needs a folder "
                    "of its own"
                )
            files.make_folder(layout.generations)
            lock = FolderLock(folder)
            try:
                if cls.exists(folder):
                    raise StateError(f"{folder} holds a state already")
                _refuse_headless(layout)
                _discard([layout.generation(n) for n in layout.numbers()])
                key = secrets.token_bytes(32)
                manifest = make_manifest(key)
                files.replace_file(layout.key, key.hex().encode(), mode=0o600)
                files.replace_file(layout.generation(0), _generation_bytes(state, 0))
                created = ledger.chained(
                    {
                        "kind": "created",
                        "time": _now(),
                        "generation": 0,
                        "state_after": state.digest(),
                        "manifest": _digest(manifest.to_bytes()),
                        "key": _digest(key),
                    },
                    ledger.GENESIS,
                )
                files.replace_file(layout.ledger, ledger.line(created))
                files.replace_file(layout.pointer, _pointer_bytes(0, 1, created["hash"]))
                files.replace_file(layout.manifest, manifest.to_bytes())
                return cls(folder, lock)
            except BaseException:
                lock.release()
                raise

    def close(self) -> None:
        """Release the lock."""
        if self._lock:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> StateStore:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # Reading

    @property
    def is_writable(self) -> bool:
        """Whether it is open for writing, and so locked."""
        return self._lock is not None

    @property
    def generation(self) -> int:
        """The number of the current generation."""
        return self.history.generation

    @property
    def entries(self) -> list[dict[str, Any]]:
        """The ledger's entries, read from it each time, as far as this store knows of them."""
        return ledger.read(self.layout.ledger).entries[: self.lines]

    @property
    def pointer(self) -> bytes:
        """What current.json holds when no commit is under way."""
        return _pointer_bytes(self.generation, self.lines, self._head)

    def key(self) -> bytes:
        """Return the secret of the keyed digests."""
        try:
            key = bytes.fromhex(self.layout.key.read_text())
        except (OSError, ValueError):
            key = b""
        if _digest(key) != self._key_digest:
            raise StateError(f"{self.layout.key} is missing or damaged")
        return key

    def load(self, generation: int | None = None) -> TensorState:
        """Return a generation's tensors, checked against the ledger."""
        number = self.generation if generation is None else generation
        path = self.layout.generation(number)
        if number not in self.history.digests:
            raise StateError(f"generation {number} has never existed in {self.layout.folder}")
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            if number == self.generation:
                raise StateError(f"{path} is missing: the state is damaged") from None
            kept = ", ".join(map(str, self.layout.numbers()))
            raise StateError(
                f"generation {number} is no longer kept; there are: {kept} ({path.name} is missing)"
            ) from None
        return self.checked(number, data)

    def checked(self, number: int, data: bytes) -> TensorState:
        """Return the tensors of a generation's file, checked against the ledger."""
        path = self.layout.generation(number)
        try:
            state = TensorState(load_tensors(data))
        except SafetensorError as error:
            raise StateError(f"{path} is damaged: {error}") from None
        if state.digest() != self.history.digests[number]:
            raise StateError(f"{path} is damaged: its digest is not the one in the ledger")
        return state

    def refresh(self) -> None:
        """Read again what an interrupted commit has left, so that memory agrees with the disk."""
        if self._in_doubt and self._lock:
            self._read(repair=True)

    # Writing

    def commit(
        self, record: Mapping[str, Any], state: State | None, keep: int | None = None
    ) -> dict[str, Any]:
        """Record a request. With a state it becomes the next generation; without, nothing moves.

        At most `keep` generations besides the first stay; by default 20, or as many as there are.
        """
        return self._commit({"kind": "request"} | dict(record), state, keep)

    def rollback(self, generation: int, keep: int | None = None) -> dict[str, Any]:
        """Return to a kept generation. Its state becomes the newest one, as a new ledger entry."""
        state = self.load(generation)
        return self._commit({"kind": "rollback", "to": generation}, state, keep)

    def prune(self, keep: int) -> list[int]:
        """Remove old generations but for the first and the newest `keep`; return which."""
        self._refuse_to_write()
        with _file_errors(self.layout.folder, "pruned"):
            return self._remove_old(keep)

    def _refuse_to_write(self) -> None:
        if self._lock is None:
            raise StateError(f"state {self.layout.folder} must be opened for writing first")
        if self._in_doubt:
            raise StateError(
                f"state {self.layout.folder} was interrupted in mid-commit; open it again"
            )

    def _commit(
        self, record: Mapping[str, Any], state: State | None, keep: int | None
    ) -> dict[str, Any]:
        self._refuse_to_write()
        with _file_errors(self.layout.folder, "written"):
            ledger_size = self.layout.ledger.stat().st_size
            kept = sum(number > 0 for number in self.layout.numbers())
        before = self.history.digests[self.generation]
        number = self.generation + (state is not None)
        body = dict(record) | {
            "time": _now(),
            "generation": number,
            "state_before": before,
            "state_after": before if state is None else state.digest(),
        }
        entry = ledger.chained(body, self._head)
        in_ledger = False
        self._in_doubt = True
        try:
            if state is not None:
                files.replace_file(self.layout.generation(number), _generation_bytes(state, number))
            ledger.append(self.layout.ledger, entry)
            in_ledger = True
            self._write_pointer(number, self.lines + 1, entry["hash"])
        except OSError as error:
            done = self._after_failure(entry, None if in_ledger else ledger_size)
            what = record.get("id", record["kind"])
            raise StateError(
                f"writing to {self.layout.folder} failed ({error.strerror}); {what!r} {done}"
            ) from error
        except BaseException:
            self._after_failure(entry, None if in_ledger else ledger_size)
            raise
        self.lines, self._head = self.lines + 1, entry["hash"]
        self.history.advance(entry)
        self._in_doubt = False
        # Without a word on it, what an earlier, larger --keep has kept is not thrown away.
        # What cannot be removed now is removed after a later commit.
        with suppress(OSError):
            self._remove_old(max(DEFAULT_KEEP, kept) if keep is None else keep)
        return entry

    def _after_failure(self, entry: dict[str, Any], cut_ledger_to: int | None) -> str:
        """Bring memory and disk to the same side of a failed commit; say on which they are."""
        try:
            if cut_ledger_to is not None:
                files.truncate(self.layout.ledger, cut_ledger_to)
            self._read(repair=True)
        except OSError:
            if cut_ledger_to is None:
                return "is applied; the next opening completes it"
            # The disk refuses even to take the line back, which may have reached it or not.
            return "may or may not have been applied; the next opening of the state will tell"
        return "is applied" if self._head == entry["hash"] else "was not applied"

    def _write_pointer(self, generation: int, entries: int, head: str) -> None:
        files.replace_file(self.layout.pointer, _pointer_bytes(generation, entries, head))

    def _remove_old(self, keep: int) -> list[int]:
        """Drop old generations; the first is kept, so that everything can always be undone.

        The oldest goes first, and is gone for good before the next: what is left has no gap.
        """
        old = [number for number in self.layout.numbers() if number > 0][: -max(keep, 1)]
        for number in old:
            files.remove(self.layout.generation(number))
        return old

    # Consistency

    def _read(self, repair: bool) -> None:
        """Read ledger and pointer and see that they agree, finishing a commit that was cut off."""
        # The pointer first: beside a writer it may then be one line behind, as after a crash.
        pointer = self._read_pointer()
        content = ledger.read(self.layout.ledger)
        entries = content.entries
        if not entries:
            raise StateError(f"{self.layout.ledger} is damaged: it has no whole line")
        if entries[0].get("manifest") != self._manifest_digest:
            raise StateError(
                f"{self.layout.manifest} is damaged: it is not the one that the state was made with"
            )
        behind = len(entries) - pointer["entries"]
        self.unfinished = bool(behind or content.torn_bytes)
        known = entries[pointer["entries"] - 1] if 0 <= behind <= 1 else {}
        if (known.get("hash"), known.get("generation")) != (pointer["head"], pointer["generation"]):
            raise StateError(
                f"{self.layout.ledger} is damaged: it has {len(entries)} lines, which are not "
                f"those that current.json was written for ({pointer['entries']} lines)"
            )
        self.lines, self._head = len(entries), content.head
        self._key_digest = entries[0].get("key", "")
        self.history = History.of(entries)
        path = self.layout.generation(self.generation)
        if not path.is_file():
            raise StateError(f"{path} is missing: the state is damaged")
        if repair:
            if content.torn_bytes:
                files.truncate(self.layout.ledger, content.whole_bytes)
                self.repairs.append(
                    f"cut off a torn last line of ledger.jsonl ({content.torn_bytes} bytes)"
                )
            self._finish_commit(behind)
            self._in_doubt = False

    def _finish_commit(self, behind: int) -> None:
        if behind:
            self._write_pointer(self.generation, self.lines, self._head)
            self.repairs.append(f"finished the commit of generation {self.generation}")
        unfinished = [n for n in self.layout.numbers() if n > self.generation]
        if unfinished:
            self.repairs.append(f"removed unfinished generation {unfinished[0]}")
        _discard([self.layout.generation(n) for n in unfinished] + self.layout.partials())

    def _read_pointer(self) -> dict[str, Any]:
        try:
            data = self.layout.pointer.read_bytes()
            pointer: dict[str, Any] = json.loads(data)
            sound = data == _pointer_bytes(**pointer) and pointer["entries"] > 0
        except FileNotFoundError:
            raise StateError(f"{self.layout.pointer} is missing: the state is damaged") from None
        except (ValueError, KeyError, TypeError):
            sound = False
        if not sound:
            raise StateError(f"{self.layout.pointer} is damaged: it is not a pointer")
        return pointer


@contextmanager
def _file_errors(folder: Path, doing: str) -> Iterator[None]:
    """Turn an `OSError` into one line that names the folder."""
    try:
        yield
    except OSError as error:
        raise StateError(
            f"state {folder} cannot be {doing}: {error.strerror} ({error.filename or folder})"
        ) from error


def _refuse_headless(layout: Layout) -> None:
    """A state that has seen requests but lost its manifest is damaged, not absent."""
    if layout.manifest.exists():
        return
    if not layout.ledger.is_file():
        lost = layout.pointer.exists() or any(number > 0 for number in layout.numbers())
    else:
        lost = len(ledger.read(layout.ledger).entries) > 1
    if lost:
        raise StateError(f"{layout.manifest} is missing: the state is damaged")


def _discard(paths: list[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def _generation_bytes(state: State, number: int) -> bytes:
    metadata = {"format": f"tfrnet-state-{FORMAT}", "generation": str(number)}
    return tensors_file(state.tensors(), metadata)


def _pointer_bytes(generation: int, entries: int, head: str) -> bytes:
    pointer = {"generation": generation, "entries": entries, "head": head}
    return json.dumps(pointer).encode()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
