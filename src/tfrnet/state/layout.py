"""Where things lie in a state folder."""

from __future__ import annotations

import re
from pathlib import Path


class Layout:
    """The paths of one state."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = folder / "manifest.json"
        self.key = folder / "key"
        self.ledger = folder / "ledger.jsonl"
        self.pointer = folder / "current.json"
        self.generations = folder / "generations"
        self.base_model = folder / "base-model"

    def generation(self, number: int) -> Path:
        """Return the file of a generation; zero-padded, so that the newest sorts last."""
        return self.generations / f"{number:08d}.safetensors"

    def numbers(self) -> list[int]:
        """Return the generations that are there, ascending."""
        names = [path.stem for path in self.generations.glob("*.safetensors")]
        return sorted(int(name) for name in names if re.fullmatch(r"\d{8,}", name))

    def partials(self) -> list[Path]:
        """Return the temporary files that a crash has left."""
        return [*self.folder.glob(".*.partial"), *self.generations.glob(".*.partial")]

    def unexpected_files(self) -> list[str]:
        """Return what lies in the folder and is no part of a state."""
        own = {"manifest.json", "key", "ledger.jsonl", "current.json", "generations", "lock"}
        own.add(self.base_model.name)
        return sorted(
            path.name
            for path in (self.folder.iterdir() if self.folder.exists() else ())
            if path.name not in own and not path.name.endswith(".partial")
        )
