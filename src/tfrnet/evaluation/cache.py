"""A cache of scores, named by a keyed digest of everything they depend on.

Only numbers are cached, never a prompt or a reply; metrics are always recomputed. The digest covers
the code's version, the model's exact digest and the exact inputs, so a changed weight, mask or
example gives a different one, and an outdated entry is never used. It is keyed, so that file names
do not reveal what was asked.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import tempfile
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tfrnet
from tfrnet.core import files
from tfrnet.models.cache import cache_folder

# Increased when the meaning of an entry changes.
_FORMAT = 2
_SECRET_BYTES = 32


class Cache:
    """A folder of entries, one file each; safe for several processes, and for its owner alone."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or cache_folder() / "evaluations"
        self._secret_file = self.folder.with_name(f"{self.folder.name}.key")
        self._secret: bytes | None = None

    def key(self, model: str, kind: str, inputs: Any, device: str) -> str:
        """Return the key of one evaluation."""
        parts = {
            "format": _FORMAT,
            "code": tfrnet.__version__,
            "versions": {name: version(name) for name in ("torch", "transformers")},
            "device": device,
            "model": model,
            "kind": kind,
            "inputs": inputs,
        }
        if self._secret is None:
            self._secret = self._known_secret() or self._new_secret()
        text = json.dumps(parts, sort_keys=True).encode()
        return hmac.new(self._secret, text, hashlib.sha256).hexdigest()

    def _known_secret(self) -> bytes | None:
        with suppress(OSError):
            secret = self._secret_file.read_bytes()
            return secret if len(secret) == _SECRET_BYTES else None
        return None

    def _new_secret(self) -> bytes:
        """Make the secret. Entries without one are of an earlier version and may hold replies."""
        secret = secrets.token_bytes(_SECRET_BYTES)
        with suppress(OSError):
            # Another process may make the secret meanwhile, and store entries. So what is there is
            # listed before the secret is looked for: without one, all of that is outdated.
            outdated = self._files()
            if self._secret_file.exists():
                outdated.append(self._secret_file)
            if known := self._known_secret():
                return known
            for path in outdated:
                path.unlink(missing_ok=True)
            files.make_folder(self._secret_file.parent)
            files.create_file(self._secret_file, secret)
            return secret
        # Another process was faster; or nothing can be written here, and nothing is kept.
        return self._known_secret() or secret

    def purge(self) -> tuple[int, int]:
        """Remove every entry and the secret; return how many entries and bytes there were."""
        entries, size = self.size()
        for path in [*self._files(), self._secret_file]:
            path.unlink(missing_ok=True)
        self._secret = None
        return entries, size

    def size(self) -> tuple[int, int]:
        """Return how many entries and bytes there are."""
        sizes = []
        for path in self._files():
            with suppress(FileNotFoundError):  # removed by another process
                sizes.append(path.stat().st_size)
        return len(sizes), sum(sizes)

    def _files(self) -> list[Path]:
        return [*self.folder.glob("*.json"), *self.folder.glob(".partial-*")]

    def get(self, key: str) -> Any | None:
        """Return an entry, or None. A damaged one counts as absent."""
        try:
            entry = json.loads((self.folder / f"{key}.json").read_text())
            text = json.dumps(entry["value"])
            whole = entry["sha256"] == hashlib.sha256(text.encode()).hexdigest()
            return entry["value"] if whole and entry["key"] == key else None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def put(self, key: str, value: Any) -> None:
        """Store an entry atomically. A cache that cannot be written is not an error."""
        text = json.dumps(value)
        entry = {"key": key, "sha256": hashlib.sha256(text.encode()).hexdigest(), "value": value}
        with suppress(OSError):
            files.make_folder(self.folder, files.PRIVATE_FOLDER)
            self.folder.chmod(files.PRIVATE_FOLDER)  # an earlier version left it open
            descriptor, name = tempfile.mkstemp(dir=self.folder, prefix=".partial-")
            partial = Path(name)
            try:
                with os.fdopen(descriptor, "w") as file:
                    json.dump(entry, file)
                partial.replace(self.folder / f"{key}.json")
            finally:
                partial.unlink(missing_ok=True)
