"""The secret of a state's keyed digests: in the state, or where its owner wants it.

The variable TFRNET_DIGEST_KEY names a file elsewhere. A new state then has no secret of its own,
and whoever has its folder alone cannot test a guess. Both files are written alike, so that one can
be moved to become the other.
"""

from __future__ import annotations

import hashlib
import secrets
from pathlib import Path

from tfrnet.core import files, key_files
from tfrnet.core.errors import DamagedError, InputError
from tfrnet.state.digests import KEY_BYTES
from tfrnet.state.layout import Layout

VARIABLE = "TFRNET_DIGEST_KEY"
_WHAT = "digest key"


def place(layout: Layout) -> Path:
    """Return the file that the secret is read from: the state's own, if it has one."""
    elsewhere = key_files.named(None, VARIABLE)
    return layout.key if elsewhere is None or layout.key.exists() else elsewhere


def refuse_unusable(layout: Layout) -> None:
    """Raise if a new state could not use the file that the variable names."""
    if path := key_files.named(None, VARIABLE):
        key_files.refuse_inside(layout.folder, path, _WHAT)
        if path.exists():
            _read_elsewhere(path)


def make(layout: Layout) -> bytes:
    """Return the secret of a new state; its file is made, unless it is elsewhere and there."""
    key = secrets.token_bytes(KEY_BYTES)
    path = key_files.named(None, VARIABLE)
    if path is None:
        files.replace_file(layout.key, key.hex().encode(), files.PRIVATE)
        return key
    refuse_unusable(layout)
    layout.key.unlink(missing_ok=True)  # of an earlier attempt: it would be taken for the secret
    if path.exists():
        return _read_elsewhere(path)
    key_files.make_secret(path, _WHAT, key.hex().encode())
    return key


def read(layout: Layout, digest: str) -> bytes:
    """Return the secret of a state, given the SHA-256 that the ledger has of it."""
    path = place(layout)
    if path != layout.key:
        key = _read_elsewhere(path)
        if not _fits(key, digest):
            raise InputError(
                f"{_WHAT} {path} is not that of state {layout.folder}; name the right one in "
                f"{VARIABLE}"
            )
        return key
    try:
        own = _parsed(path.read_bytes())
    except OSError:
        own = b""
    if not _fits(own, digest):
        moved = "" if path.exists() else f"; if it was moved, name its file in {VARIABLE}"
        raise DamagedError(f"{path} is missing or damaged{moved}")
    return own


def _read_elsewhere(path: Path) -> bytes:
    lost = "they can test which texts your states have forgotten"
    key = _parsed(key_files.read_secret(path, _WHAT, lost))
    if not key:
        raise InputError(f"{path} is not a {_WHAT}: it must hold {2 * KEY_BYTES} hex digits")
    return key


def _parsed(data: bytes) -> bytes:
    """Return the secret in a file; nothing if it is not written as it should be."""
    try:
        key = bytes.fromhex(data.decode("ascii"))
    except ValueError:
        return b""
    return key if len(key) == KEY_BYTES and key.hex().encode() == data else b""


def _fits(key: bytes, digest: str) -> bool:
    return bool(key) and hashlib.sha256(key).hexdigest() == digest
