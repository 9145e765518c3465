"""A state on disk as it stands: found, agreed upon and read, whatever a power cut has left.

Opening reads the pointer and the end of the ledger. The rest of the ledger is read, and its chain
checked, when it is first needed: for the history, and before the first commit.
"""

from __future__ import annotations

import hashlib
import os
import threading
import weakref
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self

from tfrnet.core import files
from tfrnet.core.errors import DamagedError, StateError
from tfrnet.core.lock import FolderLock
from tfrnet.state import digest_key, generation_file, ledger
from tfrnet.state.base_model import where_model_lies
from tfrnet.state.history import History
from tfrnet.state.layout import Layout
from tfrnet.state.manifest import Manifest
from tfrnet.state.pointer import Pointer
from tfrnet.state.position import Position
from tfrnet.state.signer import Signer

if TYPE_CHECKING:
    from tfrnet.core.arrays import Arrays
    from tfrnet.core.tensors import TensorState

# How often a reader looks again while another process keeps committing.
_LOOKS = 1000


class StateReader:
    """One state folder, as it was when it was opened, whatever another process commits meanwhile.

    With a lock it is the only writer's, and what an interrupted commit has left is put right.
    `repairs` says what that was.
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
        self._manifest_digest = hashlib.sha256(manifest).hexdigest()
        self._key_digest = ""
        # The hash of the ledger's first line: no other ledger has it.
        self.identity = ""
        self._read()

    def close(self) -> None:
        """Release the lock, and the file that a reader holds."""
        if self._lock:
            self._lock.release()
            self._lock = None
        if self._current is not None:
            self._current = None
            self._let_go()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

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
    def guard(self) -> list[str]:
        """The digests of the guard examples, without those that were retired."""
        retired = self.history.retired
        return [digest for digest in self.manifest.guard if digest not in retired]

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

    # Agreement of pointer, ledger and generations

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
            self._refuse_later()
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

    def _refuse_later(self) -> None:
        """Raise if there are generations that no commit which was cut off can have left."""
        later = [number for number in self.layout.numbers() if number > self.generation]
        if later and later[-1] > self.generation + 1:
            raise DamagedError(
                f"the ledger of {self.layout.folder} ends with generation {self.generation}, but "
                f"there is {self.layout.generation(later[-1]).name}: an older ledger may have been "
                "put in place of the newer one; 'tfrnet verify' names all that does not fit"
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
        unfinished = self.layout.generation(self.generation + 1)
        if unfinished.exists():
            unfinished.unlink()
            self.repairs.append(f"removed unfinished generation {self.generation + 1}")
        for path in self.layout.partials():
            path.unlink(missing_ok=True)


def _close(descriptor: int) -> None:
    with suppress(OSError):  # nothing was written, so nothing can be lost
        os.close(descriptor)
