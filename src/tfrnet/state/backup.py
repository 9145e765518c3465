"""A whole state as one file: a tar whose first member lists the digest of every other.

Nothing is compressed and nothing depends on the clock, so that equal states give equal files.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from tfrnet.core import files
from tfrnet.core.errors import InputError, StateError
from tfrnet.state import ledger
from tfrnet.state.store import StateStore

FORMAT = 1
KIND = "tfrnet backup"
CONTENTS = "backup.json"

_CHUNK = 1 << 20
_ATTEMPTS = 50
_WAIT = 0.02


def back_up(folder: Path, out: Path) -> dict[str, Any]:
    """Write a state to a new file and return the list of its contents.

    Every digest is checked on the way. Another process may go on writing to the state: the backup
    holds it as it was at one line of the ledger.
    """
    if out.exists():
        raise InputError(f"{out} exists already; choose a new file")
    if out.resolve().is_relative_to(folder.resolve()):
        raise InputError(f"{out} lies in the state that it is a backup of; choose another folder")
    with ExitStack() as until_written:
        store, generations = _held(folder, until_written)
        small = _small_files(store)
        contents = _contents(store, small, generations)
        with _write_errors(out), files.new_file(out, files.PRIVATE) as write:
            archive = tarfile.TarFile(
                fileobj=_Sink(write), mode="w", format=tarfile.PAX_FORMAT, copybufsize=_CHUNK
            )
            _add(archive, CONTENTS, io.BytesIO(json.dumps(contents, indent=1).encode()))
            for name, data in small.items():
                _add(archive, name, io.BytesIO(data))
            for name, file in generations.items():
                _add(archive, name, file)
            archive.close()
    return contents


def _held(folder: Path, stack: ExitStack) -> tuple[StateStore, dict[str, IO[bytes]]]:
    """Open a state and its generations; open files stay whole when a writer removes them.

    A writer removes the oldest first. What is gone before it could be opened is left out, unless
    it is the current one: then the state has moved on, and is opened once more.
    """
    for _ in range(_ATTEMPTS):
        store = StateStore.open(folder)
        held: dict[int, IO[bytes]] = {}
        for number in sorted(store.layout.numbers(), reverse=True):
            if number > store.generation:
                continue  # of a commit under way
            try:
                file = store.layout.generation(number).open("rb")
            except FileNotFoundError:
                continue
            held[number] = stack.enter_context(file)
        if store.generation in held:
            names = {number: _relative(store, number) for number in sorted(held)}
            return store, {names[number]: held[number] for number in names}
        stack.pop_all().close()
        time.sleep(_WAIT)
    raise StateError(f"state {folder} changes too fast to be read; try again")


def _relative(store: StateStore, number: int) -> str:
    return str(store.layout.generation(number).relative_to(store.layout.folder))


def _small_files(store: StateStore) -> dict[str, bytes]:
    """Return all but the generations, as they were at the ledger's line that the store knows.

    A key that is kept apart from its state is kept apart from the backup too.
    """
    layout, key = store.layout, store.key()
    own = {layout.key.name: key.hex().encode()} if layout.key.exists() else {}
    return own | {
        layout.ledger.name: b"".join(map(ledger.line, store.entries)),
        layout.pointer.name: store.pointer,
        layout.manifest.name: store.manifest.to_bytes(),
    }


def _contents(
    store: StateStore, small: dict[str, bytes], generations: dict[str, IO[bytes]]
) -> dict[str, Any]:
    """Return the list of a backup's files, having checked each generation against the ledger."""
    listed = {name: _entry(data) for name, data in small.items()}
    for name, file in generations.items():
        data = file.read()
        store.checked(int(Path(name).stem), data)
        file.seek(0)
        listed[name] = _entry(data)
    return {
        "kind": KIND,
        "format": FORMAT,
        "generation": store.generation,
        "lines": store.lines,
        "files": listed,
    }


def _entry(data: bytes) -> dict[str, Any]:
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _add(archive: tarfile.TarFile, name: str, file: IO[bytes]) -> None:
    member = tarfile.TarInfo(name)
    member.size = file.seek(0, io.SEEK_END)
    member.mode = files.PRIVATE
    file.seek(0)
    archive.addfile(member, file)


class _Sink(io.RawIOBase):
    """What tarfile writes to."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write, self._length = write, 0

    def write(self, data: Any) -> int:
        self._write(data)
        self._length += len(data)
        return len(data)

    def tell(self) -> int:
        return self._length


@contextmanager
def _write_errors(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{out} cannot be written: {error.strerror}; nothing was backed up"
        ) from error
