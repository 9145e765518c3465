"""The results of a bench run, read back from its folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tfrnet.core.errors import InputError
from tfrnet_bench.run.cell import SCHEMA
from tfrnet_bench.search import FIRST_TUNING_SEED

Result = Mapping[str, Any]


@dataclass(frozen=True, order=True)
class FailedCell:
    """A cell that has an error in the place of a result."""

    kind: str
    stream: str
    variant: str
    seed: int
    error: str


class RunResults(NamedTuple):
    """What a run has found so far, both in one fixed order."""

    results: list[Result]
    failed: list[FailedCell]


def read_run(folder: Path) -> RunResults:
    """Return the results and the failed cells of a run.

    A cell that has not ended yet has neither; a result is worth more than an earlier error.
    """
    cells = folder / "cells"
    if not cells.is_dir():
        raise InputError(f"{folder} is not the folder of a bench run: it has no cells")
    results = [_read_result(path) for path in cells.glob("*/*/*/*/result.json")]
    failed = [
        _read_error(path)
        for path in cells.glob("*/*/*/*/error.json")
        if not path.with_name("result.json").exists()
    ]
    check_reported_seeds(results)
    return RunResults(sorted(results, key=cell_key), sorted(failed))


def cell_key(result: Result) -> tuple[str, str, str, int]:
    """Return what tells a result from all others of a run."""
    return result["kind"], result["stream"], result["variant"], result["seed"]


def check_reported_seeds(results: Sequence[Result]) -> None:
    """Refuse results on the streams that settings were tuned on."""
    for result in results:
        if result["seed"] >= FIRST_TUNING_SEED:
            raise InputError(
                f"{'/'.join(map(str, cell_key(result)))} is on a tuning seed; "
                f"only seeds below {FIRST_TUNING_SEED} are reported"
            )


def _read_result(path: Path) -> Result:
    result = _read(path)
    if result.get("schema") != SCHEMA:
        raise InputError(f"{path} is not a result of the form {SCHEMA}")
    return result


def _read_error(path: Path) -> FailedCell:
    kind, stream, variant, seed = path.parent.parts[-4:]
    if not seed.isdecimal():
        raise InputError(f"{path} is not in the folder of a seed")
    return FailedCell(kind, stream, variant, int(seed), str(_read(path).get("error", "")))


def _read(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text())
    except ValueError as error:
        raise InputError(f"{path} is damaged: {error}") from error
    if not isinstance(value, dict):
        raise InputError(f"{path} does not hold a JSON object")
    return value
