"""A place for a new state: locked from the first moment, and left as it was if none is made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tfrnet.core import files
from tfrnet.core.errors import DamagedError, StateError
from tfrnet.core.lock import FolderLock
from tfrnet.state import digest_key, ledger
from tfrnet.state.layout import Layout


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

    def take_lock(self) -> FolderLock:
        """Hand the lock over to the state that was made."""
        assert self._lock is not None
        lock, self._lock = self._lock, None
        return lock

    def remove_state(self) -> None:
        """Remove a state that nothing was committed to; only its holder may."""
        layout = self.layout
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
