"""The tables of notebook/default.md, from the cells of benchmarks.calibrated on reporting seeds.

python -m benchmarks.default_table
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks.calibrated import honest_scores
from benchmarks.neighbours_table import facts_means, table
from tfrnet.evaluation.metrics.oracle import loss_distance, over_forgetting

Row = Mapping[str, Any]

FOLDER = Path(__file__).parent / "results" / "research"
STREAMS = ("arithmetic", "openbookqa", "boolq")
_CHANCE = {"arithmetic": 0.0, "openbookqa": 25.0, "boolq": 50.0}
_METHODS = ("default", "npo", "simnpo")


def read_cells(name: str = "default-report") -> list[Row]:
    """Return committed cells."""
    return [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text().splitlines()]


def streams_table(rows: Sequence[Row]) -> str:
    """Return a line for each method and stream: means over seeds."""
    lines = []
    for stream in STREAMS:
        for method in _METHODS:
            own = of(rows, method, stream)
            scores, fresh = ([row[name] for row in own] for name in ("honest", "fresh_ratio"))
            lines.append(
                (
                    *(stream, method, ", ".join(str(row["seed"]) for row in own)),
                    f"{fmean(scores):.1f} ({mean(own, 'forgetting')}, {mean(own, 'keeping')})",
                    " ".join(f"{score:.1f}" for score in scores),
                    mean(own, "not_yet"),
                    f"{fmean(map(lost_accuracy, own)):+.1f}",
                    " ".join(f"x{each:.1f}" for each in fresh),
                    f"{fmean(row['trade_off'] for row in own):.1f}",
                )
            )
    return table("stream, method, seeds, H, H by seed, not yet, R, fresh, T", lines)


def oracle_table(
    rows: Sequence[Row], oracles: Sequence[Row], methods: Sequence[str] = _METHODS
) -> str:
    """Return a line for each method and stream: what is left beside a model that never knew it."""
    known = {(row["task"], row["seed"]): row for row in oracles}
    lines: list[tuple[str, ...]] = []
    for stream in STREAMS:
        for method in methods:
            own = of(rows, method, stream)
            pairs = [(row["checkpoints"][-1], known[stream, row["seed"]]) for row in own]
            lines.append(
                (
                    *(stream, method),
                    f"{fmean(fmean(last['by_request']) for last, _ in pairs):.1f} %",
                    f"{fmean(fmean(oracle['by_request']) for _, oracle in pairs):.1f} %",
                    f"{fmean(over_forgetting(*map(losses, pair)) for pair in pairs):.1f} %",
                    f"{fmean(distance(*pair) for pair in pairs):.2f}",
                )
            )
    head = "stream, method, right, retrained model, less likely than its 1 %, distance of losses"
    return table(head, lines)


def oracle_scores(stream: str, rows: Sequence[Row], oracles: Sequence[Row]) -> dict[str, float]:
    """Return the scores that the retrained model itself would have: means over seeds."""
    found = []
    for oracle in oracles:
        if oracle["task"] != stream:
            continue
        (row,) = [row for row in of(rows, "default", stream) if row["seed"] == oracle["seed"]]
        first, left = row["checkpoints"][0], oracle["by_request"]
        point = {**oracle, "request": len(left), "forget": fmean(left)}
        found.append(honest_scores([first, point], _CHANCE[stream]))
    names = ("honest", "forgetting", "keeping", "trade_off")
    return {name: fmean(scores[name] for scores in found) for name in names}


def topics_table(rows: Sequence[Row]) -> str:
    """Return the means over topics of the demo's facts, after the last request."""
    facts = [row for row in rows if row["task"].startswith("demo:")]
    names = dict.fromkeys(row["candidate"] for row in facts)
    return facts_means({n: [row for row in facts if row["candidate"] == n] for n in names})


def tofu_table(rows: Sequence[Row], method: str = "default") -> str:
    """Return a line for each seed of TOFU."""
    lines = []
    for row in of(rows, method, "tofu"):
        forget, retain = (row["sets"][name] for name in ("forget", "retain"))
        figures = (
            *(forget["probability"], forget["rouge"], retain["probability"], retain["rouge"]),
            *(row["utility"], row["privacy"]["auc"]["loss"]["value"], row["fresh_ratio"]),
        )
        accepted = f"{row['accepted']} of {row['requests']}"
        lines.append((row["seed"], *(f"{each:.2f}" for each in figures), accepted))
    head = "seed, forget p, ROUGE, retain p, ROUGE, utility, AUC of LOSS, fresh, accepted"
    return table(head, lines)


def of(rows: Sequence[Row], method: str, stream: str) -> list[Row]:
    """Return a method's cells of a stream, by seed."""
    own = [row for row in rows if (row["candidate"], row["task"]) == (method, stream)]
    return sorted(own, key=lambda row: int(row["seed"]))


def mean(rows: Sequence[Row], name: str, form: str = ".0f") -> str:
    """Return the mean of one figure, as text."""
    return format(fmean(row[name] for row in rows), form)


def both(rows: Sequence[Row]) -> str:
    """Return what is forgotten and what is kept, as text."""
    return f"({mean(rows, 'forgetting')}, {mean(rows, 'keeping')})"


def lost_accuracy(row: Row) -> float:
    """Return held-out accuracy after the last request less that before the first."""
    first, last = row["checkpoints"][0], row["checkpoints"][-1]
    return fmean(last["heldout"].values()) - fmean(first["heldout"].values())


def distance(last: Row, oracle: Row) -> float:
    """Return the Kolmogorov-Smirnov distance of two models' losses of the requested items."""
    return loss_distance(losses(last), losses(oracle))


def losses(measured: Row) -> np.ndarray:
    """Return the losses of all requested items."""
    return np.concatenate([np.asarray(part) for part in measured["losses"]])


if __name__ == "__main__":
    cells, retrained = read_cells(), read_cells("default-oracle")
    tables = (streams_table, topics_table, tofu_table)
    print(oracle_table(cells, retrained), *(each(cells) for each in tables), sep="\n\n")
    for each in STREAMS:
        print(each, round(oracle_scores(each, cells, retrained)["honest"], 1))
