"""The table of notebook/tuning.md, from the trials of the second search.

python -m benchmarks.search_table
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.neighbours_table import table
from tfrnet.data.protocol import STREAMS
from tfrnet_bench.search.choice import choose, trials_of_all
from tfrnet_bench.search.plan import SearchPlan
from tfrnet_bench.search.rows import Row, read_rows

TRIALS = Path(__file__).parent / "results" / "search-2" / "trials.jsonl"
RIVALS = ("npo", "simnpo", "o3", "graddiff", "ga", "rmu", "llm-eraser", "asu")
PLAN = SearchPlan(methods=RIVALS)


@cache
def rows() -> list[Row]:
    """Return all trials."""
    return read_rows(TRIALS)


def trials_of(method: str) -> int:
    """Return how many whole trials a method had."""
    return trials_of_all(rows(), replace(PLAN, methods=(method,)))


def chosen(method: str) -> dict[str, Any]:
    """Return a method's best point of all its whole trials, by the honest Trade-off."""
    return dict(choose(rows(), replace(PLAN, methods=(method,)))[method])


def search_table() -> str:
    """Return a line for each method: where it began, what was chosen, and what is left to try."""
    lines = []
    for method in RIVALS:
        best = chosen(method)
        is_inside = not any(edge.startswith("learning_rate") for edge in best["edges"])
        lines.append(
            (
                *(method, best["points_tried"]),
                f"{best['score_of_first']:.1f}",
                f"{best['score']:.1f}",
                " / ".join(f"{best['by_stream'][stream]:.1f}" for stream in STREAMS),
                ", ".join(f"{name} {value}" for name, value in best["settings"].items()),
                "yes" if is_inside else "no",
            )
        )
    head = "method, trials, first, best, by stream, chosen, rate inside"
    return table(head, lines)


if __name__ == "__main__":
    print(search_table())
