"""The tables of README.md and docs/results.md: every method on reporting seeds 3 to 7.

python -m benchmarks.main_table
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import fmean

from benchmarks import gemma_table
from benchmarks.default_table import Row, losses, of, oracle_scores, read_cells
from benchmarks.search_table import trials_of
from tfrnet.data.protocol import STREAMS
from tfrnet.evaluation.metrics.intervals import t_interval
from tfrnet.evaluation.metrics.oracle import over_forgetting
from tfrnet_bench.document import fill_document
from tfrnet_bench.tables.table import Table

ROOT = Path(__file__).parents[1]
DOCUMENTS = (ROOT / "README.md", ROOT / "docs" / "results.md")
SEEDS = (3, 4, 5, 6, 7)
# The cells of seeds 6 and 7, which ran later; the default has them where its others are.
_LATER = "later-seeds"
_REQUESTS = 20
_TASKS = {"arithmetic": "Arithmetic", "openbookqa": "OpenBookQA", "boolq": "BoolQ"}


@dataclass(frozen=True)
class Entry:
    """Where a method's cells are, and how much it was tuned.

    `again` names the file and the candidate of streams that were run again after a change.
    """

    cells: str
    candidate: str
    tuning: str = ""
    again: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def trials(self) -> str:
        """How many trials the method's settings were chosen from."""
        return self.tuning or f"12 short + {trials_of(self.method)}"

    @property
    def method(self) -> str:
        """The method's name; cells of settings that a later search chose end with its number."""
        return self.candidate.removesuffix("-2")


_RIVALS = "tuned-rivals"
_OURS = "hundreds"
ENTRIES: Mapping[str, Entry] = {
    "**TFR-Net (default)**": Entry(
        "witness", "h0", _OURS, {"openbookqa": ("wrong-answers", "median")}
    ),
    "TFR-Net, `--preset deep`": Entry("calibrated-report", "default", _OURS),
    "NPO": Entry("default-report", "npo"),
    "SimNPO": Entry(_RIVALS, "simnpo-2"),
    "O3": Entry(_RIVALS, "o3-2"),
    "GradDiff": Entry(_RIVALS, "graddiff-2"),
    "GA": Entry(_RIVALS, "ga"),
    "RMU": Entry(_RIVALS, "rmu"),
    "LLM-Eraser": Entry(_RIVALS, "llm-eraser"),
    "ASU": Entry(_RIVALS, "asu"),
}


# What the cells of each method are called on the second family, the best first.
_ON_GEMMA: Mapping[str, str] = {
    "TFR-Net, `--preset deep`": "deep",
    "**TFR-Net (default)**": "default",
    "O3": "o3",
    "SimNPO": "simnpo",
    "NPO": "npo",
    "GradDiff": "graddiff",
}


def main_tables() -> list[Table]:
    """Return the tables by which readers meet the results."""
    found = {name: Figures(entry) for name, entry in ENTRIES.items()}
    ordered = dict(sorted(found.items(), key=lambda item: -fmean(item[1].means("honest"))))
    tables = [_main_table(ordered), _loss_table(ordered), _readme_table(ordered)]
    return [*tables, _gemma_table()]


class Figures:
    """A method's cells, of the seeds that ran to the end of all three streams."""

    def __init__(self, entry: Entry) -> None:
        places = {s: entry.again.get(s, (entry.cells, entry.candidate)) for s in STREAMS}
        self._rows = {
            stream: {
                row["seed"]: row
                for row in of([*read_cells(cells), *read_cells(_LATER)], candidate, stream)
                if row.get("requests") == _REQUESTS
            }
            for stream, (cells, candidate) in places.items()
        }
        self.seeds = [s for s in SEEDS if all(s in ran for ran in self._rows.values())]
        self.trials = entry.trials

    def of(self, stream: str) -> list[Row]:
        """Return the cells of a stream, by seed."""
        return [self._rows[stream][seed] for seed in self.seeds]

    def means(self, name: str) -> list[float]:
        """Return one figure of each seed, the mean over streams."""
        return [fmean(self._rows[stream][seed][name] for stream in STREAMS) for seed in self.seeds]

    def over_streams(self, name: str, form: str) -> str:
        """Return one figure of each stream, the mean over seeds."""
        return " / ".join(
            form.format(fmean(row[name] for row in self.of(stream))) for stream in STREAMS
        )


def over_forgotten(rows: Sequence[Row], stream: str) -> float:
    """Return how many answers a retrained model finds likelier in 99 cases of 100, in percent."""
    known = {row["seed"]: row for row in _oracles() if row["task"] == stream}
    return fmean(
        over_forgetting(losses(row["checkpoints"][-1]), losses(known[row["seed"]])) for row in rows
    )


@cache
def _oracles() -> list[Row]:
    return read_cells("default-oracle")


def _text(values: Sequence[float]) -> str:
    mean, interval = t_interval(values)
    # Of two seeds the interval says nothing.
    return f"{mean:.1f}" + (
        f" ± {interval.high - mean:.1f}" if interval and len(values) > 2 else ""
    )


def _main_table(found: Mapping[str, Figures]) -> Table:
    rows = [
        [
            name,
            _text(figures.means("honest")),
            *(
                f"{fmean(row['honest'] for row in figures.of(s)):.1f} "
                f"({fmean(row['forgetting'] for row in figures.of(s)):.0f}, "
                f"{fmean(row['keeping'] for row in figures.of(s)):.0f})"
                for s in STREAMS
            ),
            _text(figures.means("trade_off")),
            figures.trials,
        ]
        for name, figures in found.items()
    ]
    scores = {
        s: oracle_scores(s, read_cells(), [row for row in _oracles() if row["seed"] in SEEDS])
        for s in STREAMS
    }
    rows.append(
        [
            "*a retrained model*",
            f"{fmean(score['honest'] for score in scores.values()):.1f}",
            *(
                "{honest:.1f} ({forgetting:.0f}, {keeping:.0f})".format_map(scores[s])
                for s in STREAMS
            ),
            f"{fmean(score['trade_off'] for score in scores.values()):.1f}",
            "",
        ]
    )
    columns = ["Method", "Honest Trade-off", *(_TASKS[s] for s in STREAMS)]
    return Table(
        "main",
        "Both scores, after 5, 10, 15 and 20 requests (higher is better)",
        [*columns, "The paper's Trade-off", "Trials"],
        rows,
        "In brackets: forgotten, kept, in percent. ±: half of Student's 95 % interval over seeds.",
    )


def _loss_table(found: Mapping[str, Figures]) -> Table:
    rows = [
        [
            name,
            figures.over_streams("not_yet", "{:.0f}"),
            figures.over_streams("fresh_ratio", "x{:.1f}"),
            figures.over_streams("nats_after", "{:.0f}"),
            f"{over_forgotten(figures.of('openbookqa'), 'openbookqa'):.0f} %",
        ]
        for name, figures in found.items()
    ]
    return Table(
        "side",
        "What else the same runs did (arithmetic / OpenBookQA / BoolQ)",
        [
            "Method",
            "Not yet requested, still right %",
            "Loss of fresh examples",
            "Forgotten answers, nats",
            "Far below a retrained model",
        ],
        rows,
    )


def _readme_table(found: Mapping[str, Figures]) -> Table:
    rows = [
        [
            name,
            _text(figures.means("honest")),
            f"{fmean(figures.means('trade_off')):.1f}",
            figures.over_streams("not_yet", "{:.0f}"),
            figures.over_streams("fresh_ratio", "x{:.1f}"),
        ]
        for name, figures in found.items()
    ]
    return Table(
        "readme",
        "Arithmetic, OpenBookQA and BoolQ, 20 requests each, seeds 3 to 7",
        [
            "Method",
            "Honest Trade-off",
            "The paper's Trade-off",
            "Not yet requested, still right %",
            "Loss of fresh examples",
        ],
        rows,
    )


def _gemma_table() -> Table:
    cells = read_cells("gemma")
    return Table(
        "gemma",
        "The same on Gemma 3 270M, where nothing was tuned",
        ["Method", "Honest Trade-off", *_TASKS.values(), "The paper's Trade-off", "Seeds"],
        [[name, *gemma_table.scores_of(cells, method)] for name, method in _ON_GEMMA.items()],
        "Seeds: how many of 3 to 5 ran, by stream.",
    )


def main() -> None:
    tables = main_tables()
    for document in DOCUMENTS:
        document.write_text(fill_document(document.read_text(), tables))


if __name__ == "__main__":
    main()
