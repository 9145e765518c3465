"""A place for a new state: locked from the first moment, and left as it was if none is made."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tfrnet.core import files
from tfrnet.core.clock import now
from tfrnet.core.errors import DamagedError, StateError
from tfrnet.core.lock import FolderLock
from tfrnet.state import digest_key, generation_file, ledger
from tfrnet.state.layout import Layout
from tfrnet.state.pointer import Pointer

if TYPE_CHECKING:
    from tfrnet.core.signing import SigningKey
    from tfrnet.core.tensors import State
    from tfrnet.state.manifest import Manifest


class NewState:
    """A folder in which this process, and no other, is about to make a state."""

    def __init__(self, folder: Path) -> None:
        self.layout = Layout(folder)
        self._made_folder = not folder.exists()
        digest_key.refuse_unusable(self.layout)
        with file_errors(folder, "made"):
            if unexpected := self.layout.unexpected_files():
                raise StateError(
                    f"{folder} holds other files ({unexpected[0]}); choose a new or empty "
                    "folder for the state"
                )
            files.make_folder(folder, files.PRIVATE_FOLDER)
            files.make_folder(self.layout.generations, files.PRIVATE_FOLDER)
            self._lock: FolderLock | None = FolderLock(folder)
        try:
            if self.layout.manifest.exists():
                raise StateError(f"{folder} holds a state already; choose a new folder")
            refuse_headless(self.layout)
        except BaseException:
            self._lock.release()
            raise

    def write(
        self,
        make_manifest: Callable[[bytes], Manifest],
        state: State,
        signing: SigningKey | None,
    ) -> None:
        """Write the files of a state, the one that makes it a state last."""
        layout = self.layout
        for number in layout.numbers():  # what a making that was cut off has left
            layout.generation(number).unlink(missing_ok=True)
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
                "manifest": hashlib.sha256(manifest).hexdigest(),
                "key": hashlib.sha256(key).hexdigest(),
            }
            | ({"public_key": signing.public.text} if signing else {}),
            ledger.GENESIS,
            signing,
        )
        files.replace_file(layout.ledger, ledger.line(created), files.PRIVATE)
        Pointer(0, 1, created["hash"]).write(layout.pointer)
        files.replace_file(layout.manifest, manifest, files.PRIVATE)

    def take_lock(self) -> FolderLock:
        """Hand the lock over to the state that was made."""
        assert self._lock is not None
        lock, self._lock = self._lock, None
        return lock

    def remove_state(self) -> None:
        """Remove a state that nothing was committed to; only its holder may."""
        layout = self.layout
        for number in layout.numbers()[1:]:  # what a commit that failed has left
            files.remove(layout.generation(number))
        # Without its manifest it is no state, and each of the next steps leaves none either.
        for path in (layout.manifest, layout.pointer, layout.ledger, layout.generation(0)):
            files.remove(path)
        layout.key.unlink(missing_ok=True)
        layout.base_model.unlink(missing_ok=True)
        self._remove_folder()

    def close(self) -> None:
        """Let others in, if no state was made, and remove the folder if it was not there before."""
        if self._lock:
            self._remove_folder()
            self._lock.release()
            self._lock = None

    def __enter__(self) -> NewState:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _remove_folder(self) -> None:
        if self._made_folder:
            # A folder that is not empty stays.
            with suppress(OSError):
                self.layout.generations.rmdir()
                (self.layout.folder / "lock").unlink(missing_ok=True)
                self.layout.folder.rmdir()


def refuse_headless(layout: Layout) -> None:
    """Raise if a state has seen requests but lost its manifest: it is damaged, not absent."""
    if layout.manifest.exists():
        return
    if not layout.ledger.is_file():
        lost = layout.pointer.exists() or any(number > 0 for number in layout.numbers())
    else:
        lost = len(ledger.read(layout.ledger).entries) > 1
    if lost:
        raise DamagedError(f"{layout.manifest} is missing: the state is damaged")


@contextmanager
def file_errors(folder: Path, doing: str) -> Iterator[None]:
    """Turn an `OSError` into one line that names the folder."""
    try:
        yield
    except OSError as error:
        raise StateError(
            f"state {folder} cannot be {doing}: {error.strerror} ({error.filename or folder})"
        ) from error
