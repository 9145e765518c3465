"""The paper's second table: TFR-Net whole and without one of its parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tfrnet.data.protocol import STREAMS
from tfrnet_bench.constants import STREAM, UNTOUCHED
from tfrnet_bench.paper import ablation_table, main_table
from tfrnet_bench.results import CellResult, Run
from tfrnet_bench.seeds import Seeds
from tfrnet_bench.tables.guessing import guessed, guessed_score
from tfrnet_bench.tables.labels import (
    ABLATIONS,
    GUESSING,
    task_label,
    variant_label,
)
from tfrnet_bench.tables.main_table import models_note, stream_score
from tfrnet_bench.tables.table import Table

# The requests that the paper's table shows: of our stream it is the first and last checkpoint.
_PAPER_REQUESTS = (5, 20)


@dataclass(frozen=True)
class _Measure:
    title: str
    read: Callable[[CellResult], float | None]
    guessed: Seeds
    paper: Mapping[str, float]  # by variant
    digits: int = 1


def ablation_tables(run: Run) -> list[Table]:
    """Return a table for each stream that a variant without some part was tried on."""
    return [
        _stream_table(run, stream)
        for stream in run.streams(STREAM)
        if set(run.variants(STREAM, stream)) & set(ABLATIONS[1:])
    ]


def _stream_table(run: Run, stream: str) -> Table:
    in_paper = [v for v in ABLATIONS if (stream, v) in ablation_table()]
    columns = ["Measured", variant_label(UNTOUCHED), variant_label(GUESSING)]
    for variant in ABLATIONS:
        label = variant_label(variant).removeprefix("TFR-Net ")
        columns += [label, f"{label} (paper)"] if variant in in_paper else [label]
    rows = []
    for measure in _measures(run, stream):
        untouched = run.seeds(STREAM, stream, UNTOUCHED, measure.read)
        row = [measure.title, *(s.text(measure.digits) for s in (untouched, measure.guessed))]
        for variant in ABLATIONS:
            row.append(run.seeds(STREAM, stream, variant, measure.read).text(measure.digits))
            if variant in in_paper:
                number = measure.paper.get(variant)
                row.append("" if number is None else f"{number:.{measure.digits}f}")
        rows.append(row)
    guesses = len(guessed_score(run, stream, "trade_off").numbers)
    counts = ["n", str(len(run.by_seed(STREAM, stream, UNTOUCHED))), str(guesses)]
    for variant in ABLATIONS:
        counts.append(str(len(run.by_seed(STREAM, stream, variant))))
        counts += [""] if variant in in_paper else []
    return Table(
        f"ablation-{stream}",
        f"TFR-Net without one of its parts, forgetting {task_label(stream)}",
        columns,
        [*rows, counts],
        "Accuracies in percent, mean over n seeds ± half of Student's 95 % interval. "
        "TFR-Net's columns differ in one switch only; guessing is the floor. "
        f"{models_note(run)} It gives no Trade-off of its ablations.",
    )


def _measures(run: Run, stream: str) -> list[_Measure]:
    checkpoints = run.checkpoints()
    requests = checkpoints[0], checkpoints[-1]
    found = []
    for part, title in [("forget", "Forget"), *((s, f"Keep {task_label(s)}") for s in STREAMS)]:
        for request, paper_request in zip(requests, _PAPER_REQUESTS, strict=True):
            column = "forget" if part == "forget" else f"retain_{part}"
            found.append(
                _Measure(
                    f"{title} @{request}",
                    _accuracy(part, request),
                    guessed(run, stream, part),
                    {
                        variant: numbers[f"{column}_r{paper_request}"]
                        for (name, variant), numbers in ablation_table().items()
                        if name == stream
                    },
                )
            )
    paper = {"tfr": main_table()["tfr"][f"{stream}_tradeoff"]} if stream in STREAMS else {}
    floor = guessed_score(run, stream, "trade_off")
    return [*found, _Measure("Trade-off", stream_score("trade_off"), floor, paper, digits=2)]


def _accuracy(part: str, request: int) -> Callable[[CellResult], float | None]:
    def read(result: CellResult) -> float | None:
        found: Mapping[str, Any] = next(c for c in result.checkpoints if c["request"] == request)
        value = found["forget"] if part == "forget" else found["retain"].get(part)
        return None if value is None else float(value)

    return read
