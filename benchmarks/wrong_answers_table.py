"""The tables of notebook/wrong-answers.md, from the cells of benchmarks.calibrated.

python -m benchmarks.wrong_answers_table
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from benchmarks.default_table import (
    STREAMS,
    Row,
    both,
    distance,
    losses,
    lost_accuracy,
    mean,
    of,
    read_cells,
)
from benchmarks.limits_table import came_back
from benchmarks.neighbours_table import table
from tfrnet.evaluation.metrics.oracle import over_forgetting
from tfrnet_bench.constants import FIRST_TUNING_SEED

CHOSEN, OWN_TEXT = "median", "own text"
_TRIED = ("not used", "quantile 0", "quantile 0.3", "median", "quantile 0.75")
_STREAM = "openbookqa"


def tuning_table(rows: Sequence[Row]) -> str:
    """Return a line for each level that was tried, with one tuning seed after the other."""
    lines = []
    for name in _TRIED:
        own = [row for row in of(rows, name, _STREAM) if row["seed"] >= FIRST_TUNING_SEED]
        lines.append(
            (
                *(name, _each(own, "seed", "{}"), _each(own, "honest", "{:.1f}")),
                *(_each(own, "forgetting", "{:.0f}"), _each(own, "keeping", "{:.0f}")),
                *(_each(own, "fresh_ratio", "x{:.2f}"), _each(own, "nats_after", "{:.1f}")),
            )
        )
    return table("level, seeds, H, forgotten, kept, fresh, nats", lines)


def report_table(variants: Mapping[str, Sequence[Row]], oracles: Sequence[Row]) -> str:
    """Return a line for each variant on OpenBookQA's reporting seeds, beside a retrained model."""
    known = {row["seed"]: row for row in oracles if row["task"] == _STREAM}
    lines = []
    for name, own in variants.items():
        pairs = [(row["checkpoints"][-1], known[row["seed"]]) for row in own]
        lines.append(
            (
                *(name, f"{mean(own, 'honest', '.1f')} {both(own)}", mean(own, "not_yet")),
                f"{fmean(map(lost_accuracy, own)):+.1f}",
                f"x{mean(own, 'fresh_ratio', '.2f')}",
                mean(own, "nats_after", ".1f"),
                f"{fmean(fmean(last['by_request']) for last, _ in pairs):.1f} %",
                f"{fmean(over_forgetting(*map(losses, pair)) for pair in pairs):.1f} %",
                f"{fmean(distance(*pair) for pair in pairs):.2f}",
                f"{fmean(map(came_back, own)):.0f}",
            )
        )
    return table(
        "wrong answers, H, not yet, R, fresh, nats, right, less likely than its 1 %, "
        "distance of losses, came back",
        lines,
    )


def own_text_table(variants: Mapping[str, Mapping[str, Sequence[Row]]]) -> str:
    """Return a line for each stream and variant: what is kept with and without retain data."""
    lines = [
        (
            *(stream, name, f"{mean(own[stream], 'honest', '.1f')} {both(own[stream])}"),
            mean(own[stream], "not_yet"),
            f"{fmean(map(lost_accuracy, own[stream])):+.1f}",
            f"x{mean(own[stream], 'fresh_ratio', '.2f')}",
            mean(own[stream], "nats_after", ".1f"),
        )
        for stream in STREAMS
        for name, own in variants.items()
    ]
    return table("stream, retain data, H, not yet, R, fresh, nats", lines)


def reported(rows: Sequence[Row], candidate: str, stream: str) -> list[Row]:
    """Return a candidate's cells of reporting seeds."""
    return [row for row in of(rows, candidate, stream) if row["seed"] < FIRST_TUNING_SEED]


def own_text_variants() -> dict[str, dict[str, list[Row]]]:
    """Return the cells with retain data, and without it before and now, of seeds 3 to 5."""
    cells, before = read_cells("wrong-answers"), read_cells("witness")
    given = {stream: of(before, "h0", stream)[:3] for stream in STREAMS}
    given[_STREAM] = reported(cells, CHOSEN, _STREAM)[:3]
    return {
        "given": given,
        "none, before": {stream: of(before, "own", stream) for stream in STREAMS},
        "none": {stream: reported(cells, OWN_TEXT, stream) for stream in STREAMS},
    }


def report_variants() -> dict[str, list[Row]]:
    """Return the cells on OpenBookQA before wrong answers were used, and with them."""
    return {
        "not used": of(read_cells("witness"), "h0", _STREAM),
        "median": reported(read_cells("wrong-answers"), CHOSEN, _STREAM),
    }


def _each(rows: Sequence[Row], name: str, form: str) -> str:
    return ", ".join(form.format(row[name]) for row in rows)


if __name__ == "__main__":
    print(
        report_table(report_variants(), read_cells("default-oracle")),
        tuning_table(read_cells("wrong-answers")),
        own_text_table(own_text_variants()),
        sep="\n\n",
    )
