"""A state on disk that a power cut cannot break.

One request is one commit, in this order: the new generation (temporary file, fsync, rename, fsync
of the folder), a line in the ledger (append, fsync), the pointer (like the generation). The
ledger's line decides: a generation without a line is not committed, and a line that the pointer
does not name yet is carried over when the state is next opened for writing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfrnet.core import files
from tfrnet.core.clock import now
from tfrnet.core.errors import InputError, StateError
from tfrnet.core.lock import FolderLock
from tfrnet.core.signing import named_key
from tfrnet.state import generation_file, ledger
from tfrnet.state.layout import Layout
from tfrnet.state.manifest import Manifest
from tfrnet.state.new_state import NewState, file_errors, refuse_headless
from tfrnet.state.pointer import Pointer
from tfrnet.state.position import Position
from tfrnet.state.reader import StateReader
from tfrnet.state.signer import Signer

if TYPE_CHECKING:
    from tfrnet.core.tensors import State

DEFAULT_KEEP = 20


class StateStore(StateReader):
    """One state folder. `StateStore.open` for an existing one, `StateStore.create` for a new one.

    A store that is open for reading shows the state as it was when it was opened, whatever another
    process commits meanwhile.
    """

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
            with file_errors(folder, "made"):
                new.write(make_manifest, state, signer.first_key())
            lock = new.take_lock()
        with file_errors(folder, "opened"):
            try:
                return cls(folder, lock, signer)
            except BaseException:
                lock.release()
                raise

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

    def retire_guard(self, digests: Sequence[str]) -> None:
        """Go on without some of the guard examples, for good."""
        if not digests or not set(digests) <= set(self.guard):
            raise InputError("guard examples that are retired must be among those of the state")
        self._commit({"kind": "guard", "retired": list(digests)}, None, None)

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
            raise StateError(
                f"writing to {self.layout.folder} failed ({error.strerror}); "
                f"{_named(record)} {done}"
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


def open_or_place(folder: Path, key: str | Path | None = None) -> StateStore | NewState:
    """Return a state, open for writing, or the place for one; both are locked."""
    if StateStore.exists(folder):
        return StateStore.open(folder, write=True, key=key)
    Signer(folder, named_key(key)).check("")
    return NewState(folder)


def _named(record: Mapping[str, Any]) -> str:
    """Return what a user would call the event that a line tells of."""
    if "id" in record:
        return repr(record["id"])
    if record["kind"] == "guard":
        return "the retirement of guard examples (the request after it was not applied)"
    return f"the {record['kind']}"
