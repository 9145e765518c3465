"""The cells of a bench run, as they lie on disk."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfrnet.core.errors import InputError

NO_OP = "none"


@dataclass(frozen=True)
class Cell:
    """One finished cell. `samples` are whole texts before and after, where they were kept."""

    kind: str
    stream: str
    variant: str
    seed: int
    result: dict[str, Any]
    samples: list[dict[str, Any]]

    @property
    def method(self) -> str:
        """The method that the variant is one of."""
        return str(self.result.get("method", self.variant))

    @property
    def is_ablation(self) -> bool:
        """Whether the variant is something else than a method with one of its presets."""
        return self.variant not in (self.method, f"{self.method}-{self.result.get('preset')}")

    @property
    def requests(self) -> list[dict[str, Any]]:
        """The outcomes of the requests."""
        return list(self.result.get("requests", ()))


@dataclass(frozen=True)
class Failure:
    """A cell without a result, and why."""

    cell: str
    error: str


@dataclass(frozen=True)
class BenchRun:
    """A whole run; `unfinished` are cells that were begun and have neither result nor error."""

    folder: Path
    bench: dict[str, Any]
    cells: list[Cell]
    failures: list[Failure]
    unfinished: list[str]

    def of_kind(self, kind: str) -> list[Cell]:
        """Return the finished cells of one kind."""
        return [cell for cell in self.cells if cell.kind == kind]


def is_bench_run(folder: Path) -> bool:
    """Tell whether a folder looks like that of a bench run."""
    return (folder / "bench.json").is_file() or (folder / "cells").is_dir()


def read_bench_run(folder: Path) -> BenchRun:
    """Read every cell; one whose result cannot be read counts as failed, and the rest is shown."""
    cells: list[Cell] = []
    failures: list[Failure] = []
    unfinished: list[str] = []
    for path in sorted((folder / "cells").glob("*/*/*/*")):
        if not path.is_dir():
            continue
        found = _read_cell(path)
        if isinstance(found, Cell):
            cells.append(found)
        elif isinstance(found, Failure):
            failures.append(found)
        else:
            unfinished.append(_name(path))
    if not cells and not failures:
        raise InputError(f"{folder} has no finished cell yet (cells/KIND/STREAM/VARIANT/SEED)")
    cells.sort(key=lambda cell: (cell.kind, cell.stream, cell.variant, cell.seed))
    return BenchRun(folder, _read_bench(folder / "bench.json"), cells, failures, unfinished)


def _read_bench(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        values = json.loads(path.read_text())
    except ValueError as error:
        raise InputError(f"{path} is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise InputError(f"{path} is not a JSON object")
    return values


def _read_cell(path: Path) -> Cell | Failure | None:
    result, error = path / "result.json", path / "error.json"
    # A cell that failed and was run again has both; then the result counts.
    if result.is_file():
        try:
            kind, stream, variant, seed = path.parts[-4:]
            values = json.loads(result.read_text())
            samples = list(_json_lines(path / "samples.jsonl"))
            return Cell(kind, stream, variant, int(seed), dict(values), samples)
        except (ValueError, TypeError) as problem:
            return Failure(_name(path), f"its files cannot be read: {problem}")
    if error.is_file():
        try:
            return Failure(_name(path), str(json.loads(error.read_text())["error"]))
        except (ValueError, TypeError, KeyError):
            return Failure(_name(path), "its error.json cannot be read")
    return None


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    if path.is_file():
        for line in path.read_text().splitlines():
            if line.strip():
                yield dict(json.loads(line))


def _name(path: Path) -> str:
    return "/".join(path.parts[-4:])
