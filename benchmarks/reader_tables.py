"""The short tables of README.md and docs/results.md, computed from the results of the paper's run.

`benchmarks.results_document` writes them. The paper's Trade-off counts all items of a stream,
requested or not, and rewards wrong answers below chance. `requested_table` shows the same runs
without either: only items requested so far, and nothing gained below chance.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

from tfrnet.data.protocol import STREAMS
from tfrnet.evaluation.metrics.continual import trade_off
from tfrnet_bench.results import Result, RunResults
from tfrnet_bench.tables.cells import Cells
from tfrnet_bench.tables.guessing import guessed_score
from tfrnet_bench.tables.labels import ABLATIONS, CONTROL, GUESSING, task_label, variant_label
from tfrnet_bench.tables.seeds import Seeds, combine
from tfrnet_bench.tables.table import Table

# What a method would score that changes the requested items and nothing else.
_IDEALS = {
    "ideal: requested items wrong": lambda result: 0.0,
    "ideal: requested items at chance": lambda result: result["floors"]["forget"]["random"],
}
_INTERVALS = "Mean over three seeds ± half of Student's 95 % interval."


def reader_tables(run: RunResults) -> list[Table]:
    """Return all tables for readers."""
    cells = Cells(*run)
    return [_scores_table(cells), _requested_table(cells), _readme_table(cells)]


def requested_forgetting(result: Result) -> float:
    """Return how much of the requested items' accuracy above chance is gone, in percent."""
    before = fmean(result["forgetting"]["accuracy"]["before"])
    chance = result["floors"]["forget"]["random"]
    seen = [result["forgetting"]["seen"][request - 1] for request in _checkpoints(result)]
    return 100 * fmean((before - max(now, chance)) / (before - chance) for now in seen)


def keeping(result: Result) -> float:
    """Return how much of the held-out accuracy is left, in percent of what it was."""
    first, *later = (fmean(point["retain"].values()) for point in result["checkpoints"])
    return 100 * fmean(now / first for now in later)


def requested_trade_off(result: Result) -> float:
    """Return the harmonic mean of both; 0 where nothing was forgotten."""
    forgotten = max(requested_forgetting(result), 0.0)
    kept = keeping(result)
    return 2 * forgotten * kept / (forgotten + kept)


def not_yet_requested(result: Result) -> float:
    """Return how many of the items that are still to be requested are right, in percent."""
    return fmean(
        result["forgetting"]["unseen"][request - 1] for request in _checkpoints(result)[:-1]
    )


def ideal_trade_off(result: Result, accuracy: float) -> float:
    """Return the paper's score of a method that gives requested items this accuracy alone."""
    size = result["protocol"]["request_size"]
    fixed = [i for i, mark in enumerate(result["items"]["fixed"]) if mark == "1"]
    right = result["items"]["correct"][0]
    forget = [
        fmean(accuracy if i < size * request else 100.0 * int(right[i]) for i in fixed)
        for request in _checkpoints(result)
    ]
    return trade_off(fmean(forget), fmean(result["checkpoints"][0]["retain"].values()))


def _checkpoints(result: Result) -> list[int]:
    return [point["request"] for point in result["checkpoints"] if point["request"]]


def _methods(cells: Cells) -> list[str]:
    return [v for v in cells.variants("stream") if v not in (*ABLATIONS[1:], CONTROL)]


def _by_stream(cells: Cells, variant: str, number: Callable[[Result], float]) -> list[Seeds]:
    return [cells.seeds("stream", stream, variant, number) for stream in STREAMS]


def _paper_scores(cells: Cells) -> dict[str, list[Seeds]]:
    scores = {
        variant_label(variant): _by_stream(
            cells, variant, lambda result: float(result["scores"]["trade_off"])
        )
        for variant in _methods(cells)
    }
    scores[variant_label(GUESSING)] = [
        guessed_score(cells, stream, "trade_off") for stream in STREAMS
    ]
    return scores


def _best_first(scores: dict[str, list[Seeds]]) -> list[str]:
    return sorted(scores, key=lambda name: -combine(scores[name]).mean()[0])


def _scores_table(cells: Cells) -> Table:
    scores = _paper_scores(cells)
    for name, accuracy in _IDEALS.items():
        scores[name] = _by_stream(
            cells,
            "none",
            lambda result, accuracy=accuracy: ideal_trade_off(result, accuracy(result)),
        )
    rows = [
        [name, *(part.text(1) for part in scores[name]), combine(scores[name]).text(1)]
        for name in _best_first(scores)
    ]
    return Table(
        "scores",
        "The paper's Trade-off (higher is better)",
        ["Method", *map(task_label, STREAMS), "Mean"],
        rows,
        f"{_INTERVALS} The two ideal rows are computed, not run: they change the requested items, "
        "nothing else.",
    )


def _requested_table(cells: Cells) -> Table:
    scores = {
        variant_label(variant): _by_stream(cells, variant, requested_trade_off)
        for variant in _methods(cells)
    }
    names = {variant_label(variant): variant for variant in _methods(cells)}
    rows = []
    for name in _best_first(scores):
        variant = names[name]
        forgotten = _by_stream(cells, variant, requested_forgetting)
        kept = _by_stream(cells, variant, keeping)
        texts = [
            f"{score.mean()[0]:.1f} ({max(lost.mean()[0], 0.0):.0f}, {left.mean()[0]:.0f})"
            for score, lost, left in zip(scores[name], forgotten, kept, strict=True)
        ]
        others = [part.mean()[0] for part in _by_stream(cells, variant, not_yet_requested)]
        spared = " / ".join(f"{value:.0f}" for value in others)
        rows.append([name, *texts, combine(scores[name]).text(1), spared])
    return Table(
        "requested",
        "Requested items only, no credit below chance (higher is better)",
        ["Method", *map(task_label, STREAMS), "Mean", "Not yet requested, still right %"],
        rows,
        f"In brackets: forgotten, kept. {_INTERVALS}",
    )


def _readme_table(cells: Cells) -> Table:
    scores = _paper_scores(cells)
    requested = {
        variant_label(variant): combine(_by_stream(cells, variant, requested_trade_off)).text(1)
        for variant in _methods(cells)
    }
    rows = [
        [name, combine(scores[name]).text(), requested.get(name, "")]
        for name in _best_first(scores)
        if name not in map(variant_label, ("none", "tfr-paper"))
    ]
    return Table(
        "readme",
        "Mean over three streams and three seeds, ± half of the 95 % interval over seeds",
        ["Method", "Trade-off (the paper's score)", "Requested items only, floored at chance"],
        rows,
    )
