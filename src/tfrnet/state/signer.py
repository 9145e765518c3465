"""The keys at hand for signing a state's ledger."""

from __future__ import annotations

import warnings
from pathlib import Path

from tfrnet.core.errors import StateError, TfrnetWarning
from tfrnet.core.key_files import refuse_inside
from tfrnet.core.signing import WHAT, SigningKey, make_key, read_key, short


class Signer:
    """Finds the key for the next line: the file at `path`, which must be the one in force."""

    def __init__(self, folder: Path, path: Path | None) -> None:
        self._folder = folder
        self._path = path
        self._keys: dict[str, SigningKey] = {}

    def check(self, in_force: str) -> None:
        """Raise if the next line could not be signed; `in_force` is empty before the first key."""
        if self._path:
            refuse_inside(self._folder, self._path, WHAT)
        if in_force:
            self.key_for(in_force)
        elif self._path and self._path.exists():
            read_key(self._path)

    def key_for(self, in_force: str) -> SigningKey | None:
        """Return the key in force, or None for a state that is not signed."""
        if in_force and in_force not in self._keys:
            if self._path is None:
                raise StateError(
                    f"state {self._folder} is signed by key {short(in_force)}; give its file "
                    "with --key or TFRNET_KEY"
                )
            key = self._hold(read_key(self._path))
            if key.public.text != in_force:
                raise StateError(
                    f"{self._path} is key {short(key.public.text)}, but state {self._folder} is "
                    f"signed by key {short(in_force)}; give that one with --key"
                )
        return self._keys.get(in_force)

    def first_key(self) -> SigningKey | None:
        """Return the key for a state that was not signed so far; its file is made if need be."""
        if not self._path:
            return None
        if not self._path.exists():
            # Whoever mistyped the name of a key should know it now.
            warnings.warn(
                f"made signing key {self._path}; keep it: from now on nothing can be written to "
                f"state {self._folder} without it",
                TfrnetWarning,
                stacklevel=2,
            )
        return self.next_key(self._path)

    def next_key(self, path: Path) -> SigningKey:
        """Return the key in a file, which is made if there is none, and have it at hand."""
        refuse_inside(self._folder, path, WHAT)
        return self._hold(read_key(path) if path.exists() else make_key(path))

    def _hold(self, key: SigningKey) -> SigningKey:
        self._keys[key.public.text] = key
        return key
