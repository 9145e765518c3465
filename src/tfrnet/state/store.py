"""A state on disk that a power cut cannot break.

One request is one commit, in this order: the new generation (temporary file, fsync, rename, fsync
of the folder), a line in the ledger (append, fsync), the pointer (like the generation). The
ledger's line decides: a generation without a line is not committed, and a line that the pointer
does not name yet is carried over when the state is next opened for writing.

Opening reads the pointer and the end of the ledger. The rest of the ledger is read, and its chain
checked, when it is first needed: for the history, and before the first commit.
"""

from __future__ import annotations

import hashlib
import os
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from tfrnet.core import files
from tfrnet.core.clock import now
from tfrnet.core.errors import DamagedError, InputError, StateError
from tfrnet.core.lock import FolderLock
from tfrnet.core.signing import SigningKey, named_key
from tfrnet.state import digest_key, generation_file, ledger
from tfrnet.state.base_model import where_model_lies
from tfrnet.state.history import History
from tfrnet.state.layout import Layout
from tfrnet.state.manifest import Manifest
from tfrnet.state.new_state import NewState, file_errors, refuse_headless
from tfrnet.state.pointer import Pointer
from tfrnet.state.position import Position
from tfrnet.state.signer import Signer

if TYPE_CHECKING:
    from tfrnet.core.arrays import Arrays
    from tfrnet.core.tensors import State, TensorState

DEFAULT_KEEP = 20
# How often a reader looks again while another process keeps committing.
_LOOKS = 1000


class StateStore:
    """One state folder. `StateStore.open` for an existing one, `StateStore.create` for a new one.

    A store that is open for reading shows the state as it was when it was opened, whatever another
    process commits meanwhile. `repairs` says what an interrupted commit had left and what was done
    about it.
    """

    position: Position

    def __init__(self, folder: Path, lock: FolderLock | None, signer: Signer) -> None:
        self.layout = Layout(folder)
        self._signer = signer
        self.repairs: list[str] = []
        # Whether a commit was cut off, or is going on in another process.
        self.unfinished = False
        self._lock = lock
        # Set while a commit is under way; memory may then be behind the disk.
        self._in_doubt = False
        # Of the ledger itself no more is kept in memory: it becomes long. Other threads may ask for
        # it while one commits.
        self._history: History | None = None
        self._memory = threading.RLock()
        # A reader's open file of the current generation: a writer may remove its name.
        self._current: int | None = None
        manifest = self.layout.manifest.read_bytes()
        self.manifest = Manifest.from_bytes(manifest, self.layout.manifest)
        self._manifest_digest = _digest(manifest)
        self._key_digest = ""
        # The hash of the ledger's first line: no other ledger has it.
        self.identity = ""
        self._read()

    # Opening and making

    @staticmethod
    def exists(folder: Path) -> bool:
        """Tell whether a folder holds a state."""
        return Layout(folder).manifest.is_file()

    @classmethod
    def open(cls, folder: Path, write: bool = False, key: str | Path | None = None) -> StateStore:
        """Open a state; for writing it is locked and an interrupted commit is put right.

        `key` is the file of the key that signs what is written, by default the one that TFRNET_KEY
        names. Without it a signed state cannot be written to.
        """
        signer = Signer(folder, named_key(key))
        if not cls.exists(folder):
            refuse_headless(Layout(folder))
            raise StateError(
                f"{folder} holds no state (no manifest.json); give its folder with --state"
            )
        with file_errors(folder, "opened"):
            lock = FolderLock(folder) if write else None
            try:
                return cls(folder, lock, signer)
            except BaseException:
                if lock:
                    lock.release()
                raise

    @classmethod
    def create(
        cls,
        place: Path | NewState,
        make_manifest: Callable[[bytes], Manifest],
        state: State,
        key: str | Path | None = None,
    ) -> StateStore:
        """Make a new state in an empty folder. The manifest is written last and completes it.

        `make_manifest` is given the secret of the keyed digests; `key` is as in `open`.
        """
        folder = place.layout.folder if isinstance(place, NewState) else place
        signer = Signer(folder, named_key(key))
        signer.check("")
        with place if isinstance(place, NewState) else NewState(place) as new:
            layout = new.layout
            with file_errors(folder, "made"):
                _discard([layout.generation(n) for n in layout.numbers()])
                _write_first(layout, make_manifest, state, signer.first_key())
            lock = new.take_lock()
        with file_errors(folder, "opened"):
            try:
                return cls(folder, lock, signer)
            except BaseException:
                lock.release()
                raise

    def close(self) -> None:
        """Release the lock, and the file that a reader holds."""
        if self._lock:
            self._lock.release()
            self._lock = None
        if self._current is not None:
            self._current = None
            self._let_go()

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
        return self.position.generation

    @property
    def lines(self) -> int:
        """The number of the ledger's lines."""
        return self.position.lines

    @property
    def head(self) -> str:
        """The hash of the ledger's last line."""
        return self.position.head

    @property
    def public_key(self) -> str:
        """The public key that has to sign the next line; empty in an unsigned state."""
        return self.position.public_key

    @property
    def model(self) -> str:
        """What the base model is loaded from: its name, or the folder where it was last."""
        return where_model_lies(self.layout, self.manifest.model)

    @property
    def entries(self) -> list[dict[str, Any]]:
        """The ledger's entries, read and checked each time, as far as this store knows of them."""
        here = self.position  # another thread may commit meanwhile
        content = ledger.read(self.layout.ledger, here.length)
        if (content.head, len(content.entries)) != (here.head, here.lines):
            self._refuse_lines(len(content.entries), here.lines)
        return content.entries

    def entries_after(self, lines: int) -> list[dict[str, Any]]:
        """Return the entries after so many lines; no more of the ledger is read than its end."""
        here = self.position
        count = max(0, here.lines - lines)
        return ledger.read_last(self.layout.ledger, here.length, count, here.head)

    @property
    def history(self) -> History:
        """What the ledger says happened; the whole ledger is read for it, once."""
        with self._memory:
            if self._history is None:
                self._history = self._played(self.entries)
            return self._history

    @property
    def measures(self) -> Mapping[str, Any]:
        """The guard loss now and of the untouched model, and the hold-out data's, if measured.

        The last line says them; of a ledger whose last line does not, all is read.
        """
        told = self.position.measures
        return self.history.measures if told is None else told

    @property
    def pointer(self) -> bytes:
        """What current.json holds when no commit is under way."""
        return Pointer(self.generation, self.lines, self.position.head).to_bytes()

    def key(self) -> bytes:
        """Return the secret of the keyed digests."""
        if not self.layout.folder.is_dir():
            raise StateError(f"state {self.layout.folder} has been moved or deleted")
        return digest_key.read(self.layout, self._key_digest)

    def load(self, generation: int | None = None) -> TensorState:
        """Return a generation's tensors, checked against the ledger."""
        number = self.generation if generation is None else generation
        return self.checked(number, self._content(number))

    def arrays(self, generation: int | None = None) -> Arrays:
        """Return a generation's tensors as numpy arrays, checked likewise; torch is not needed."""
        from tfrnet.core.arrays import arrays_digest

        number = self.generation if generation is None else generation
        path = self.layout.generation(number)
        arrays = generation_file.parse_arrays(self._content(number), path)
        self._refuse_damaged(number, arrays_digest(arrays.items()))
        return arrays

    def _content(self, number: int) -> bytes:
        """Return the content of a generation's file; why there is none, if there is none."""
        path = self.layout.generation(number)
        self.digest_of(number)  # one that has never existed is not missing
        try:
            return self.read_file(number)
        except FileNotFoundError:
            if number == self.generation:
                raise DamagedError(f"{path} is missing: the state is damaged") from None
            kept = ", ".join(map(str, self.layout.numbers()))
            raise StateError(
                f"generation {number} is no longer kept; choose from {kept} ({path.name} is "
                "missing)"
            ) from None

    def checked(self, number: int, data: bytes) -> TensorState:
        """Return the tensors of a generation's file, checked against the ledger."""
        state = generation_file.parse(data, self.layout.generation(number))
        self._refuse_damaged(number, state.digest())
        return state

    def _refuse_damaged(self, number: int, digest: str) -> None:
        if digest != self.digest_of(number):
            path = self.layout.generation(number)
            raise DamagedError(f"{path} is damaged: its digest is not the one in the ledger")

    def digest_of(self, number: int) -> str:
        """Return the digest of a generation's tensors, as the ledger has it."""
        if number == self.generation:
            return self.position.digest
        if number not in self.history.digests:
            raise StateError(f"generation {number} has never existed in {self.layout.folder}")
        return self.history.digests[number]

    def read_file(self, number: int) -> bytes:
        """Return the content of a generation's file."""
        if number == self.generation and self._current is not None:
            with open(self._current, "rb", closefd=False) as file:
                file.seek(0)
                return file.read()
        return self.layout.generation(number).read_bytes()

    def size(self) -> int:
        """Return how many bytes the current generation takes on the disk."""
        if self._current is not None:
            return os.fstat(self._current).st_size
        return self.layout.generation(self.generation).stat().st_size

    def is_behind(self) -> bool:
        """Tell whether another process has committed since this store was opened."""
        return Pointer.read(self.layout.pointer).entries > self.position.lines

    def refresh(self) -> None:
        """Read again what an interrupted commit has left, so that memory agrees with the disk."""
        if self._in_doubt and self._lock:
            self._read()

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
        """Remove old generations but for the first and the newest `keep`; return which.

        The ledger records it, so that a pruned generation can be told from a lost one.
        """
        self._refuse_to_write()
        oldest = self._oldest_kept(self.generation, keep)
        old = self._older_than(oldest)
        if old:
            if oldest != self.position.oldest:  # else a pruning that was cut off has recorded it
                self._commit({"kind": "pruned"}, None, keep)
            with file_errors(self.layout.folder, "pruned"):  # what the commit could not remove
                self._remove_older()
        return old

    def begin_signing(self) -> None:
        """Sign from now on, if there is a key and the state was unsigned so far."""
        if not self.public_key and (key := self._signer.first_key()):
            self._commit({"kind": "key", "public_key": key.public.text}, None, None)

    def rotate_key(self, path: Path) -> None:
        """Hand over to another key, made if it is not there; the old one signs that."""
        if not self.public_key:
            raise InputError(
                f"state {self.layout.folder} is not signed; 'tfrnet key sign' signs it"
            )
        key = self._signer.next_key(path)
        if key.public.text == self.public_key:
            raise InputError(f"{path} is the key that signs state {self.layout.folder} already")
        self._commit({"kind": "key", "public_key": key.public.text}, None, None)

    def _refuse_to_write(self) -> None:
        if self._lock is None:
            raise StateError(f"state {self.layout.folder} must be opened for writing first")
        if self._in_doubt:
            raise StateError(
                f"state {self.layout.folder} was interrupted in mid-commit; open it again"
            )
        self._lock.refuse_lost()

    def _commit(
        self, record: Mapping[str, Any], state: State | None, keep: int | None
    ) -> dict[str, Any]:
        self._refuse_to_write()
        if record["kind"] != "key":
            self.begin_signing()
        with file_errors(self.layout.folder, "written"):
            entry = self._next_entry(record, state, keep)
        in_ledger = False
        self._in_doubt = True
        try:
            if state is not None:
                number = entry["generation"]
                generation_file.write(self.layout.generation(number), state, number)
            ledger.append(self.layout.ledger, entry)
            in_ledger = True
            self._point_at(entry)
        except OSError as error:
            done = self._after_failure(entry, in_ledger)
            what = record.get("id", record["kind"])
            raise StateError(
                f"writing to {self.layout.folder} failed ({error.strerror}); {what!r} {done}"
            ) from error
        except BaseException:
            self._after_failure(entry, in_ledger)
            raise
        self._advance(entry)
        self._in_doubt = False
        # What cannot be removed now is removed after a later commit.
        with suppress(OSError):
            self._remove_older()
        return entry

    def _next_entry(
        self, record: Mapping[str, Any], state: State | None, keep: int | None
    ) -> dict[str, Any]:
        before = self.position
        number = before.generation + (state is not None)
        body = dict(record) | {
            "time": now(),
            "sequence": before.lines + 1,
            "state": self.identity,
            "generation": number,
            "state_before": before.digest,
            "state_after": before.digest if state is None else state.digest(),
            "totals": self.history.totals_after(record),
            "measures": self.history.measures_after(record),
            "oldest": self._oldest_kept(number, keep),
        }
        # The first key signs the line that names it; a later one countersigns.
        named = self._signer.key_for(record.get("public_key", ""))
        key = self._signer.key_for(before.public_key) or named
        return ledger.chained(body, before.head, key, named if named is not key else None)

    def _oldest_kept(self, newest: int, keep: int | None) -> int:
        """Return the oldest generation besides the first that stays once `newest` is there."""
        oldest = self.position.oldest
        if oldest is None:  # a ledger of before: the folder tells
            oldest = min((n for n in self.layout.numbers() if n > 0), default=0)
        # Without a word on it, what an earlier, larger --keep has kept is not thrown away.
        kept = self.generation - oldest + 1 if oldest else 0
        keep = max(DEFAULT_KEEP, kept) if keep is None else max(keep, 1)
        return max(oldest, newest - keep + 1, min(newest, 1))

    def _advance(self, entry: dict[str, Any]) -> None:
        length = self.position.length + len(ledger.line(entry))
        position = Position.told_by(entry, length)
        assert position is not None
        with self._memory:
            history = self.history
            self.position = position
            history.advance(entry)

    def _after_failure(self, entry: dict[str, Any], in_ledger: bool) -> str:
        """Bring memory and disk to the same side of a failed commit; say on which they are."""
        try:
            if not in_ledger:
                files.truncate(self.layout.ledger, self.position.length)
            self._read()
        except OSError:
            if in_ledger:
                return "is applied; the next opening completes it"
            # The disk refuses even to take the line back, which may have reached it or not.
            return "may or may not have been applied; the next opening of the state will tell"
        return "is applied" if self.position.head == entry["hash"] else "was not applied"

    def _point_at(self, entry: Mapping[str, Any]) -> None:
        pointer = Pointer(entry["generation"], self.position.lines + 1, entry["hash"])
        pointer.write(self.layout.pointer)

    def _older_than(self, oldest: int) -> list[int]:
        """Return the generations before the oldest to be kept; the first always is."""
        return [number for number in self.layout.numbers() if 0 < number < oldest]

    def _remove_older(self) -> None:
        """Drop the generations that are no longer kept.

        The oldest goes first, and is gone for good before the next: what is left has no gap.
        """
        for number in self._older_than(self.position.oldest or 0):
            files.remove(self.layout.generation(number))

    # Consistency

    def _read(self) -> None:
        """Find out where the state stands; a writer finishes a commit that was cut off."""
        for _ in range(_LOOKS):
            pointer = Pointer.read(self.layout.pointer)
            # Position and history change together, for threads that ask meanwhile.
            with self._memory:
                is_settled = self._settle(pointer)
            if is_settled:
                return
            # Beside a writer, the ledger and the generations may be newer than the pointer was.
            if self._lock or Pointer.read(self.layout.pointer) == pointer:
                self._refuse(pointer)
        raise StateError(f"state {self.layout.folder} changes too fast to be read; try again")

    def _settle(self, pointer: Pointer) -> bool:
        """Take over what the disk says; tell whether pointer, ledger and generation agree."""
        tail = ledger.read_tail(self.layout.ledger, pointer.head)
        if tail is None or len(tail.entries) > 2:
            return False
        behind = len(tail.entries) - 1
        position = self._position(tail)
        first = position.lines - behind, tail.entries[0].get("generation")
        if first != (pointer.entries, pointer.generation):
            return False
        self._check_beginning()
        self.position = position
        self.unfinished = bool(behind or tail.torn_bytes)
        if not self._hold_current():
            return False
        if self._lock:
            self._signer.check(self.public_key)
            self._finish_commit(behind, tail.torn_bytes)
            self._in_doubt = False
        return True

    def _position(self, tail: ledger.Tail) -> Position:
        self._history = None
        try:
            position = Position.told_by(tail.entries[-1], tail.whole_bytes)
        except (KeyError, TypeError):
            raise DamagedError(
                f"{self.layout.ledger} is damaged: its last line lacks what every line has"
            ) from None
        if position is None:  # a line of before: one pass over the whole ledger
            content = ledger.read(self.layout.ledger, tail.whole_bytes)
            self._history = self._played(content.entries)
            position = Position.derived(
                self._history, len(content.entries), content.head, tail.whole_bytes
            )
        return position

    def _played(self, entries: list[dict[str, Any]]) -> History:
        try:
            return History.of(entries)
        except (KeyError, TypeError):
            raise DamagedError(
                f"{self.layout.ledger} is damaged: a line lacks what every line has"
            ) from None

    def _check_beginning(self) -> None:
        """See that the ledger begins with the making of this very state."""
        first = ledger.read_first(self.layout.ledger)
        if first.get("manifest") != self._manifest_digest:
            raise DamagedError(
                f"{self.layout.manifest} is damaged: it is not the one that the state was made with"
            )
        self._key_digest = first.get("key", "")
        self.identity = first["hash"]

    def _hold_current(self) -> bool:
        """Tell whether the current generation is there. A reader keeps its file open."""
        path = self.layout.generation(self.generation)
        if self._lock:
            return path.is_file()
        try:
            self._current = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        self._let_go = weakref.finalize(self, _close, self._current)
        return True

    def _refuse(self, pointer: Pointer) -> NoReturn:
        """Say what is wrong with a ledger, a pointer or a generation that do not agree."""
        entries = ledger.read(self.layout.ledger).entries
        if not entries:
            raise DamagedError(f"{self.layout.ledger} is damaged: it has no whole line")
        path = self.layout.generation(pointer.generation)
        if entries[-1]["hash"] == pointer.head and not path.is_file():
            raise DamagedError(f"{path} is missing: the state is damaged")
        self._refuse_lines(len(entries), pointer.entries)

    def _refuse_lines(self, found: int, expected: int) -> NoReturn:
        raise DamagedError(
            f"{self.layout.ledger} is damaged: it has {found} lines, which are not those that "
            f"current.json was written for ({expected} lines)"
        )

    def _finish_commit(self, behind: int, torn_bytes: int) -> None:
        """Put right what a commit that was cut off has left."""
        if torn_bytes:
            files.truncate(self.layout.ledger, self.position.length)
            self.repairs.append(f"cut off a torn last line of ledger.jsonl ({torn_bytes} bytes)")
        if behind:
            here = self.position
            Pointer(here.generation, here.lines, here.head).write(self.layout.pointer)
            self.repairs.append(f"finished the commit of generation {self.generation}")
        unfinished = [n for n in self.layout.numbers() if n > self.generation]
        if unfinished:
            self.repairs.append(f"removed unfinished generation {unfinished[0]}")
        _discard([self.layout.generation(n) for n in unfinished] + self.layout.partials())


def _write_first(
    layout: Layout,
    make_manifest: Callable[[bytes], Manifest],
    state: State,
    signing: SigningKey | None,
) -> None:
    """Write the files of a new state, the one that makes it a state last."""
    key = digest_key.make(layout)
    manifest = make_manifest(key).to_bytes()
    generation_file.write(layout.generation(0), state, 0)
    created = ledger.chained(
        {
            "kind": "created",
            "time": now(),
            "sequence": 1,
            "generation": 0,
            "state_after": state.digest(),
            "totals": {"seen": 0, "applied": 0, "rejected": 0},
            "measures": {},
            "oldest": 0,
            "manifest": _digest(manifest),
            "key": _digest(key),
        }
        | ({"public_key": signing.public.text} if signing else {}),
        ledger.GENESIS,
        signing,
    )
    files.replace_file(layout.ledger, ledger.line(created), files.PRIVATE)
    Pointer(0, 1, created["hash"]).write(layout.pointer)
    files.replace_file(layout.manifest, manifest, files.PRIVATE)


def _discard(paths: list[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def _close(descriptor: int) -> None:
    with suppress(OSError):  # nothing was written, so nothing can be lost
        os.close(descriptor)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
