"""LUME and KnowUnDo by the scores that their authors publish, after the last request."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tfrnet.evaluation.published import lume_aggregate
from tfrnet_bench.constants import STREAM
from tfrnet_bench.results import CellResult, Run
from tfrnet_bench.tables.labels import in_order, task_label, variant_label
from tfrnet_bench.tables.table import Table

Sets = Mapping[str, Mapping[str, float]]
Read = Callable[[Sets], float | None]


def _score(name: str, figure: str) -> Read:
    return lambda sets: sets[name].get(figure)


_COLUMNS: Mapping[str, Mapping[str, Read]] = {
    "lume": {
        "Forget: regurgitation": _score("forget", "regurgitation"),
        "Forget: knowledge": _score("forget", "knowledge"),
        "Retain: regurgitation": _score("retain", "regurgitation"),
        "Retain: knowledge": _score("retain", "knowledge"),
        "Task aggregate": lume_aggregate,
        "Stories: knowledge": _score("stories", "knowledge"),
        "Real people: knowledge": _score("real", "knowledge"),
    },
    "knowundo": {
        "Unlearn success": _score("unlearn", "unlearn_success"),
        "Retention success": _score("retention", "retention_success"),
        "Retention perplexity": _score("retention", "perplexity"),
        "Retention ROUGE-L": _score("retention", "rouge"),
    },
}
_NOTES = {
    "lume": "From 0 to 1. Regurgitation is the ROUGE-L recall of completions, knowledge the share "
    "of questions answered word for word; lower is better for the people to be forgotten. The task "
    "aggregate is the harmonic mean of what is kept and what is not left, here of the people "
    "alone. Stories and real people are nobody's request, and the model was not trained on the "
    "latter.",
    "knowundo": "Of questions that were not in any request, about the authors that were. Unlearn "
    "success is the share of a private answer's tokens that are not the model's first choice, "
    "retention success that of a public answer's tokens that are, in percent.",
}


def published_tables(run: Run) -> list[Table]:
    """Return a table for each of the two datasets that was run."""
    return [_table(run, stream) for stream in _COLUMNS if stream in run.streams(STREAM)]


def _table(run: Run, stream: str) -> Table:
    columns = _COLUMNS[stream]
    rows = [
        [
            variant_label(variant),
            *(
                run.seeds(STREAM, stream, variant, _after(read)).text(3)
                for read in columns.values()
            ),
        ]
        for variant in in_order(run.variants(STREAM, stream))
    ]
    return Table(
        f"published-{stream}",
        f"{task_label(stream)} by its own scores",
        ["Method", *columns],
        rows,
        f"Mean over seeds ± half of Student's 95 % interval. {_NOTES[stream]}",
    )


def _after(read: Read) -> Callable[[CellResult], float | None]:
    def value(result: CellResult) -> float | None:
        return read(result.published["after"]) if result.published else None

    return value
