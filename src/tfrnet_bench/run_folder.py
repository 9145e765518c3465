"""The folder of a bench run: its plans, and the files of each cell.

bench.json                              the plans that the run was made with
cells/KIND/STREAM/VARIANT/SEED/         result.json or error.json, and samples.jsonl
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tfrnet.core import files
from tfrnet.core.errors import InputError

CELL_SCHEMA = "tfrnet.cell/1"
BENCH_SCHEMA = "tfrnet.bench/1"


class CellKey(NamedTuple):
    """What identifies a cell of a run."""

    kind: str
    stream: str
    variant: str
    seed: int

    def __str__(self) -> str:
        return "/".join(map(str, self))


class CellFolder:
    """The folder of a cell: a result or an error, and while it runs what a resume needs."""

    def __init__(self, run: Path, key: CellKey) -> None:
        self.key = key
        self.path = _cells(run) / str(key)
        self.result = self.path / "result.json"
        self.error = self.path / "error.json"
        self.samples = self.path / "samples.jsonl"

    def known_inputs(self) -> str | None:
        """Return the digest of the inputs of the finished result; None if there is no result."""
        try:
            found = json.loads(self.result.read_text())["inputs"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return str(found)

    def read_result(self) -> dict[str, Any]:
        """Return the result; raise ValueError if the file does not hold this cell's."""
        values = json.loads(self.result.read_text())
        if not isinstance(values, dict) or values.get("schema") != CELL_SCHEMA:
            raise ValueError(f"{self.result.name} is not a result of the form {CELL_SCHEMA}")
        if [values.get(name) for name in CellKey._fields] != list(self.key):
            raise ValueError(f"{self.result.name} is the result of another cell")
        return values

    def read_samples(self) -> list[dict[str, Any]]:
        """Return questions and answers in words, where they were kept."""
        if not self.samples.is_file():
            return []
        lines = self.samples.read_text().splitlines()
        return [dict(json.loads(line)) for line in lines if line.strip()]

    def read_error(self) -> str:
        """Return why there is no result."""
        try:
            return str(json.loads(self.error.read_text())["error"])
        except (ValueError, TypeError, KeyError):
            return f"its {self.error.name} cannot be read"

    def write_result(self, result: dict[str, Any]) -> None:
        """Write the result atomically, and remove an earlier error."""
        files.replace_file(self.result, _line(result))
        self.error.unlink(missing_ok=True)

    def write_error(self, error: dict[str, Any]) -> None:
        """Say why there is no result."""
        files.make_folder(self.path)
        files.replace_file(self.error, _line(error))

    def write_samples(self, samples: list[dict[str, Any]]) -> None:
        """Write questions and answers in words, which the result leaves out."""
        files.replace_file(self.samples, b"".join(map(_line, samples)))


def is_run_folder(folder: Path) -> bool:
    """Tell whether a folder looks like that of a bench run."""
    return _bench_file(folder).is_file() or _cells(folder).is_dir()


def cell_folders(run: Path) -> Iterator[CellFolder]:
    """Yield the folder of every cell that was begun, in the order of their keys."""
    keys = []
    for path in _cells(run).glob("*/*/*/*"):
        if not path.is_dir():
            continue
        kind, stream, variant, seed = path.parts[-4:]
        if not seed.isdecimal():
            raise InputError(f"{path} is not the folder of a cell: {seed!r} is not a seed")
        keys.append(CellKey(kind, stream, variant, int(seed)))
    for key in sorted(keys):
        yield CellFolder(run, key)


def read_plans(run: Path) -> list[dict[str, Any]]:
    """Return the plans that the run was made with, as plain values; empty if there is no record."""
    place = _bench_file(run)
    if not place.is_file():
        return []
    try:
        values = json.loads(place.read_text())
    except ValueError as error:
        raise InputError(f"{place} is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise InputError(f"{place} is not a JSON object")
    return list(values.get("plans", ()))


def write_plans(run: Path, plans: Sequence[dict[str, Any]]) -> None:
    """Write the plans that the run is made with."""
    files.make_folder(run)
    described = {"schema": BENCH_SCHEMA, "plans": list(plans)}
    files.replace_file(_bench_file(run), json.dumps(described, indent=1).encode() + b"\n")


def _cells(run: Path) -> Path:
    return run / "cells"


def _bench_file(run: Path) -> Path:
    return run / "bench.json"


def _line(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"
