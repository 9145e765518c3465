"""Few results with chosen numbers, and a look into a table."""

from __future__ import annotations

from copy import deepcopy
from functools import cache

from tests.bench import made_up
from tfrnet.evaluation.metrics.continual import StreamScores
from tfrnet_bench.results import CellFailure
from tfrnet_bench.run_folder import CellKey

STREAMS = made_up.STREAMS


@cache
def _template(kind: str, masked: bool) -> dict:
    variant = "tfr" if masked else "ga"
    if kind == "robust":
        return made_up.robust_result(variant, "boolq", 0)
    return made_up.stream_result(variant, "boolq", 0)


def stream(variant: str, name: str, seed: int, forget: float = 50, retain: float = 50) -> dict:
    """Return a stream's result with these averages."""
    scores = StreamScores(forget, forget, retain)
    result = deepcopy(_template("stream", variant.startswith("tfr")))
    result |= {"variant": variant, "stream": name, "seed": seed}
    return result | {"scores": vars(scores) | {"trade_off": scores.trade_off}}


def robust(variant: str, name: str, seed: int) -> dict:
    result = deepcopy(_template("robust", True))
    return result | {"variant": variant, "stream": name, "seed": seed}


def failure(kind: str, name: str, variant: str, seed: int) -> CellFailure:
    return CellFailure(CellKey(kind, name, variant, seed), "InputError: out of luck")


def find(tables, name):
    """Return the table of a name as {first cell: {column: cell}}."""
    table = next(table for table in tables if table.name == name)
    return {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
