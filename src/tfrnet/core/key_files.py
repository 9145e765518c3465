"""Files that hold a key: small, and for their owner's eyes only if the key is secret."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from tfrnet.core import files
from tfrnet.core.errors import InputError

_MOST_BYTES = 1 << 16


def named(path: str | Path | None, variable: str) -> Path | None:
    """Return the path of a key: the one given, that of the environment variable, or none."""
    given = path or os.environ.get(variable)
    return Path(given).expanduser() if given else None


def refuse_inside(folder: Path, path: Path, what: str) -> None:
    """Raise if a key that is to be kept apart from a state lies in it."""
    if path.resolve().is_relative_to(folder.resolve()):
        raise InputError(
            f"{what} {path} lies in the state itself; whoever has the state must not have "
            "it, so keep it elsewhere"
        )


def make_secret(path: Path, what: str, data: bytes) -> None:
    """Write a secret key for its owner's eyes only; one that is there already stays."""
    try:
        files.make_folder(path.parent)
        files.create_file(path, data, files.PRIVATE)
    except FileExistsError:
        raise InputError(
            f"{path} exists already; choose a new file, because keys are never overwritten"
        ) from None
    except OSError as error:
        raise InputError(f"{what} {path} cannot be written: {error.strerror}") from None


def read_secret(path: Path, what: str, if_read: str) -> bytes:
    """Read a secret key, if nobody but its owner can; `if_read` says what to do if others have."""
    data, mode = _content(path, what)
    if mode & files.OTHERS:
        raise InputError(
            f"{what} {path} is open to others (mode {mode:04o}); 'chmod 600 {path}', and if "
            f"others may have read it, {if_read}"
        )
    return data


def read_open(path: Path, what: str) -> bytes:
    """Read a key that is for everybody."""
    return _content(path, what)[0]


def _content(path: Path, what: str) -> tuple[bytes, int]:
    """Return a small file's bytes and who may read it, both of the same file."""
    try:
        # Without waiting, should it be a pipe.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode):
                raise InputError(f"{what} {path} is not a file")
            return os.read(descriptor, _MOST_BYTES), stat.S_IMODE(mode)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise InputError(f"{what} {path} does not exist") from None
    except OSError as error:
        raise InputError(f"{what} {path} cannot be read: {error.strerror}") from None
