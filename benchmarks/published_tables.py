"""The tables of notebook/published.md, from the results of the paper's experiments.

python -m benchmarks.published_tables

The paper's Trade-off counts all items of a stream, requested or not, and rewards wrong answers
below chance. The second reading here counts only items requested so far, and nothing below chance.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from tfrnet.data.protocol import STREAMS
from tfrnet.evaluation.metrics.continual import trade_off
from tfrnet.evaluation.metrics.intervals import t_interval
from tfrnet.evaluation.metrics.requested import HonestScores, honest_scores
from tfrnet_bench.document import fill_document
from tfrnet_bench.tables.table import Table

ROOT = Path(__file__).parents[1]
STREAM_CELLS = ROOT / "benchmarks" / "results" / "paper" / "cells" / "stream"
DOCUMENT = ROOT / "benchmarks" / "notebook" / "published.md"
SEEDS = (0, 1, 2)
UNTOUCHED, PAPER_RULE = "untouched", "TFR-Net (paper's rule)"
METHODS = {
    UNTOUCHED: "none",
    "GA": "ga",
    "GradDiff": "graddiff",
    "NPO": "npo",
    "RMU": "rmu",
    "SimNPO": "simnpo",
    "LLM-Eraser": "llm-eraser",
    "O3": "o3",
    "ASU": "asu",
    PAPER_RULE: "tfr-paper",
    "TFR-Net": "tfr",
}
_TASKS = {"arithmetic": "Arithmetic", "openbookqa": "OpenBookQA", "boolq": "BoolQ"}
_INTERVALS = "Mean over three seeds ± half of Student's 95 % interval."

Result = Mapping[str, Any]
# A number of each seed, stream by stream.
Scores = Mapping[str, list[float]]


def published_tables() -> list[Table]:
    """Return both readings of the results."""
    paper = {name: _numbers(cell, _paper_score) for name, cell in METHODS.items()}
    paper["guessing"] = _numbers("none", _guessed_score)
    requested = {name: _numbers(cell, requested_trade_off) for name, cell in METHODS.items()}
    return [_scores_table(paper), _requested_table(requested)]


def read_cell(cell: str, stream: str, seed: int) -> dict[str, Any]:
    """Return the result of one method on one stream."""
    path = STREAM_CELLS / stream / cell / str(seed) / "result.json"
    result: dict[str, Any] = json.loads(path.read_text())
    return result


def requested_forgetting(result: Result) -> float:
    """Return how much of the requested items' accuracy above chance is gone, in percent."""
    return _honest(result).forgotten


def keeping(result: Result) -> float:
    """Return how much of the held-out accuracy is left, in percent of what it was."""
    return _honest(result).kept


def requested_trade_off(result: Result) -> float:
    """Return the harmonic mean of both; 0 where nothing was forgotten."""
    return _honest(result).trade_off


def not_yet_requested(result: Result) -> float:
    """Return how many of the items that are still to be requested are right, in percent."""
    *requests, _ = _checkpoints(result)
    return fmean(result["forgetting"]["unseen"][request - 1] for request in requests)


def ideal_score(result: Result, accuracy: float) -> float:
    """Return the paper's score if requested items had this accuracy and all else were untouched."""
    size = result["protocol"]["request_size"]
    fixed = [i for i, mark in enumerate(result["items"]["fixed"]) if mark == "1"]
    right = result["items"]["correct"][0]
    forget = [
        fmean(accuracy if i < size * request else 100.0 * int(right[i]) for i in fixed)
        for request in _checkpoints(result)
    ]
    return trade_off(fmean(forget), fmean(result["checkpoints"][0]["retain"].values()))


def _honest(result: Result) -> HonestScores:
    first, *later = (fmean(point["retain"].values()) for point in result["checkpoints"])
    found = honest_scores(
        fmean(result["forgetting"]["accuracy"]["before"]),
        [result["forgetting"]["seen"][request - 1] for request in _checkpoints(result)],
        _chance(result),
        first,
        later,
    )
    assert found, "the backbones know what is to be forgotten"
    return found


def _paper_score(result: Result) -> float:
    return float(result["scores"]["trade_off"])


def _guessed_score(result: Result) -> float:
    return trade_off(_chance(result), fmean(result["floors"][task]["random"] for task in STREAMS))


def _chance(result: Result) -> float:
    return float(result["floors"]["forget"]["random"])


def _checkpoints(result: Result) -> list[int]:
    return [point["request"] for point in result["checkpoints"] if point["request"]]


def _numbers(cell: str, number: Callable[[Result], float]) -> Scores:
    return {s: [number(read_cell(cell, s, seed)) for seed in SEEDS] for s in STREAMS}


def _over_streams(scores: Scores) -> list[float]:
    return [fmean(values) for values in zip(*scores.values(), strict=True)]


def _best_first(scores: Mapping[str, Scores]) -> list[str]:
    return sorted(scores, key=lambda name: -fmean(_over_streams(scores[name])))


def _text(values: list[float], digits: int = 1) -> str:
    mean, interval = t_interval(values)
    reach = f" ± {interval.high - mean:.{digits}f}" if interval else ""
    return f"{mean:.{digits}f}{reach}"


def _scores_table(paper: Mapping[str, Scores]) -> Table:
    ideals = {
        "*ideal: requested items wrong*": _numbers("none", lambda result: ideal_score(result, 0.0)),
        "*ideal: requested items at chance*": _numbers(
            "none", lambda result: ideal_score(result, _chance(result))
        ),
    }
    scores = {**paper, **ideals}
    rows = [
        [name, *(_text(scores[name][s]) for s in STREAMS), _text(_over_streams(scores[name]))]
        for name in _best_first(scores)
    ]
    return Table(
        "scores",
        "The paper's Trade-off (higher is better)",
        ["Method", *(_TASKS[s] for s in STREAMS), "Mean"],
        rows,
        f"{_INTERVALS} The two ideal rows are computed, not run: they change the requested items "
        "and nothing else.",
    )


def _requested_table(requested: Mapping[str, Scores]) -> Table:
    rows = []
    for name in _best_first(requested):
        forgotten, kept, others = (
            _numbers(METHODS[name], number)
            for number in (requested_forgetting, keeping, not_yet_requested)
        )
        texts = [
            f"{fmean(requested[name][s]):.1f} "
            f"({max(fmean(forgotten[s]), 0.0):.0f}, {fmean(kept[s]):.0f})"
            for s in STREAMS
        ]
        spared = " / ".join(f"{fmean(others[s]):.0f}" for s in STREAMS)
        rows.append([name, *texts, _text(_over_streams(requested[name])), spared])
    return Table(
        "requested",
        "Requested items only, no credit below chance (higher is better)",
        ["Method", *(_TASKS[s] for s in STREAMS), "Mean", "Not yet requested, still right %"],
        rows,
        f"In brackets: forgotten, kept. {_INTERVALS}",
    )


def main() -> None:
    DOCUMENT.write_text(fill_document(DOCUMENT.read_text(), published_tables()))


if __name__ == "__main__":
    main()
