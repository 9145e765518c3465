"""The pointer: which line of the ledger was the last when a commit was complete."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from tfrnet.core import files
from tfrnet.core.errors import DamagedError


@dataclass(frozen=True)
class Pointer:
    """The generation reached, the number of the ledger's lines, and the hash of the last."""

    generation: int
    entries: int
    head: str

    def write(self, path: Path) -> None:
        """Put it in the place of the one before, durably."""
        files.replace_file(path, self.to_bytes(), files.PRIVATE)

    @classmethod
    def read(cls, path: Path) -> Pointer:
        """Read it; anything but the bytes that `write` leaves is damage."""
        try:
            data = path.read_bytes()
            pointer = cls(**json.loads(data))
            sound = data == pointer.to_bytes() and pointer._is_of_its_types()
        except FileNotFoundError:
            raise DamagedError(f"{path} is missing: the state is damaged") from None
        except (ValueError, TypeError, RecursionError):
            sound = False
        if not sound:
            raise DamagedError(f"{path} is damaged: it is not a pointer")
        return pointer

    def _is_of_its_types(self) -> bool:
        numbers = type(self.generation) is int and type(self.entries) is int
        return numbers and self.entries > 0 and isinstance(self.head, str) and self.head.isascii()

    def to_bytes(self) -> bytes:
        """Return it as it stands in its file."""
        return json.dumps(asdict(self)).encode()
