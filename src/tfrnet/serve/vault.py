"""Encrypting the words of requests while they wait."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tfrnet.core import files
from tfrnet.core.errors import StateError

_KEY_BYTES = 32
_NONCE_BYTES = 12


def key_in(path: Path) -> bytes:
    """Return the key in a file, which is made where there is none (mode 0600)."""
    if not path.exists():
        files.make_folder(path.parent)
        files.replace_file(path, secrets.token_bytes(_KEY_BYTES).hex().encode(), 0o600)
    try:
        key = bytes.fromhex(path.read_text())
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise StateError(f"{path} is not a key of {_KEY_BYTES} bytes, in hex")
    return key


class Vault:
    """AES-256-GCM under the key in a file."""

    def __init__(self, key_file: Path) -> None:
        key = key_in(key_file)
        self._cipher = AESGCM(key)
        self._file = key_file
        # Another key for another use.
        self._digest_key = hmac.new(key, b"digests", hashlib.sha256).digest()

    def lock(self, value: Any, name: str) -> bytes:
        """Encrypt plain JSON values; they can be had back under the same name only."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, json.dumps(value).encode(), name.encode())

    def unlock(self, data: bytes, name: str) -> Any:
        """Return what was encrypted under a name."""
        try:
            text = self._cipher.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], name.encode())
        except InvalidTag:
            raise StateError(
                f"the words of request {name!r} cannot be read with the key in {self._file}; put "
                "back the key that they were encrypted with, or give a new folder with --queue and "
                "send again what waits in this one"
            ) from None
        return json.loads(text)

    def digest(self, value: Any) -> str:
        """Return a keyed digest of plain JSON values, to recognise them again."""
        text = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
        return hmac.new(self._digest_key, text, hashlib.sha256).hexdigest()
