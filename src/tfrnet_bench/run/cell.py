"""One cell of the grid, and the files in its folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tfrnet.core import files
from tfrnet_bench.run.variants import Variant

Kind = Literal["stream", "tofu", "robust"]
SCHEMA = "tfrnet.cell/1"


@dataclass(frozen=True)
class Cell:
    """A variant on one stream with one seed; `kind` says what is done and measured."""

    kind: Kind
    variant: Variant
    stream: str
    seed: int

    @property
    def key(self) -> str:
        """A name that no other cell has, and the place of its folder."""
        return f"{self.kind}/{self.stream}/{self.variant.label}/{self.seed}"


class CellFolder:
    """The folder of a cell: a result or an error, and while it runs what a resume needs."""

    def __init__(self, run: Path, cell: Cell) -> None:
        self.path = run / "cells" / cell.key
        self.result = self.path / "result.json"
        self.error = self.path / "error.json"
        self.samples = self.path / "samples.jsonl"

    def known_inputs(self) -> str | None:
        """Return the digest of what the finished result was made from; None if there is none."""
        try:
            found = json.loads(self.result.read_text())["inputs"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return str(found)

    def write_result(self, result: dict[str, Any]) -> None:
        """Write the result, whole or not at all; an earlier error is gone with it."""
        files.replace_file(self.result, _bytes(result))
        self.error.unlink(missing_ok=True)

    def write_error(self, error: dict[str, Any]) -> None:
        """Say why there is no result."""
        files.make_folder(self.path)
        files.replace_file(self.error, _bytes(error))

    def write_samples(self, samples: list[dict[str, Any]]) -> None:
        """Write questions and answers in words, which the result leaves out."""
        files.replace_file(self.samples, b"".join(_bytes(sample) for sample in samples))


def _bytes(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"
