"""A cache of raw model outputs, keyed by a digest of everything they depend on.

Only model outputs are cached; metrics are always recomputed. The key covers the code's version, the
model's exact digest and the exact inputs, so a changed weight, mask or example gives a different
key, and an outdated entry is never used.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tfrnet
from tfrnet.models.gguf import cache_folder

# Increased when the meaning of an entry changes.
_FORMAT = 1


class Cache:
    """A folder of entries, one file each; safe for several processes."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or cache_folder() / "evaluations"

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
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

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
            self.folder.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=self.folder, prefix=".partial-")
            partial = Path(name)
            try:
                with os.fdopen(descriptor, "w") as file:
                    json.dump(entry, file)
                partial.replace(self.folder / f"{key}.json")
            finally:
                partial.unlink(missing_ok=True)
