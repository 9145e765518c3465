"""The paper's first table: what each method forgot and kept on every stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tfrnet.data.protocol import STREAMS
from tfrnet.evaluation.yardsticks import YARDSTICKS
from tfrnet_bench.constants import STREAM, UNTOUCHED
from tfrnet_bench.honest import measured
from tfrnet_bench.paper import BASELINES, main_table
from tfrnet_bench.results import CellResult, Run
from tfrnet_bench.seeds import NOT_RUN, Seeds, combine, count_text
from tfrnet_bench.tables.guessing import guessed_score
from tfrnet_bench.tables.labels import (
    ABLATIONS,
    CONTROL,
    GUESSING,
    in_order,
    task_label,
    variant_label,
)
from tfrnet_bench.tables.table import Table

# The paper's TFR-Net is what both aim at.
_PAPER_NAMES = {"tfr-paper": "tfr"}
_SCORES = ("forget_average", "forget_final", "retain_average", "trade_off")
_PAPER_SCORES = ("f_avg", "f_at_20", "r_avg", "tradeoff")
_INTERVALS = (
    "Mean over seeds ± half of Student's 95 % interval; n is the number of seeds. "
    "Guessing is the floor: a model that knows nothing from the beginning."
)
_SCORE_NOTES = [
    f"{title}: {YARDSTICKS[name].meaning}"
    for title, name in (("Mean Trade", "trade_off"), ("Honest", "honest_trade_off"))
]


def main_tables(run: Run) -> list[Table]:
    """Return the Trade-offs of all streams, then each stream's scores."""
    streams = run.streams(STREAM)
    if not streams:
        return []
    return [_overview(run), *(_stream_table(run, stream) for stream in streams)]


def main_variants(run: Run) -> list[str]:
    """Return the variants to show: the paper's, run or not, and any others that were run."""
    always = {UNTOUCHED, *BASELINES, "tfr-paper", "tfr"}
    return in_order(always | (set(run.variants(STREAM)) - {*ABLATIONS, CONTROL}))


def models_note(run: Run) -> str:
    """Say which models the numbers are of: ours and the paper's differ."""
    names = sorted({result.model["name"] for result in run.of_kind(STREAM)})
    measured = f"Measured on {' and '.join(names)}; the" if names else "The"
    return f"{measured} paper's numbers are of LLaMA-7B."


def stream_score(name: str) -> Callable[[CellResult], float]:
    """Return a function that reads a score from a stream's result."""
    return lambda result: float(result.scores[name])


def _score_seeds(run: Run, stream: str, variant: str, name: str) -> Seeds:
    """Return a score by seed, of a variant or of guessing."""
    if variant == GUESSING:
        return guessed_score(run, stream, name)
    return run.seeds(STREAM, stream, variant, stream_score(name))


def _honest_cells(run: Run, variant: str) -> list[str]:
    """Return the honest Trade-off of each stream, and the mean; guessing has nothing to forget."""
    if variant == GUESSING:
        return [""] * (len(STREAMS) + 1)
    parts = [measured(run, stream, variant, "honest_trade_off") for stream in STREAMS]
    return [part.text(1) for part in (*parts, combine(parts))]


def _rows(run: Run) -> list[str]:
    return in_order([GUESSING, *main_variants(run)])


def _overview(run: Run) -> Table:
    variants = _rows(run)
    trade_offs = {
        variant: [_score_seeds(run, stream, variant, "trade_off") for stream in STREAMS]
        for variant in variants
    }
    means = {variant: combine(parts) for variant, parts in trade_offs.items()}
    best = _best_baseline(means)
    titles = [*map(task_label, STREAMS), "Mean Trade", "Gain"]
    rows = []
    for variant in variants:
        gain = means[variant].minus(means[best]).text() if best else NOT_RUN
        rows.append(
            [
                variant_label(variant),
                *(part.text() for part in trade_offs[variant]),
                means[variant].text(),
                gain,
                *_honest_cells(run, variant),
                count_text(trade_offs[variant]),
                *_paper_cells(
                    variant, [*(f"{s}_tradeoff" for s in STREAMS), "mean_tradeoff", "gain_vs_best"]
                ),
            ]
        )
    return Table(
        "main",
        "Trade-off of forgetting and keeping on the three streams",
        [
            *("Method", *titles),
            *(f"Honest: {title}" for title in (*map(task_label, STREAMS), "mean")),
            *("n", *(f"{title} (paper)" for title in titles)),
        ],
        rows,
        " ".join([*_SCORE_NOTES, _INTERVALS, _gain_note(means, best), models_note(run)]),
    )


def _best_baseline(means: Mapping[str, Seeds]) -> str | None:
    measured = [name for name in BASELINES if means[name].numbers]
    return max(measured, key=lambda name: means[name].mean()[0], default=None)


def _gain_note(means: Mapping[str, Seeds], best: str | None) -> str:
    if best is None:
        return "No baseline of the paper has a Mean Trade, so there are no gains."
    lacking = [variant_label(name) for name in BASELINES if not means[name].numbers]
    note = (
        f"Gain is over {variant_label(best)}, the best of the paper's baselines here, seed by seed."
    )
    return note + (f" Without a Mean Trade: {', '.join(lacking)}." if lacking else "")


def _stream_table(run: Run, stream: str) -> Table:
    titles = ["F Avg", f"F@{run.checkpoints()[-1]}", "R Avg", "Trade-off"]
    # The paper's streams have 20 requests, whatever ours have.
    paper_titles = ["F Avg", "F@20", "R Avg", "Trade-off"]
    rows = []
    for variant in _rows(run):
        scores = [_score_seeds(run, stream, variant, name) for name in _SCORES]
        rows.append(
            [
                variant_label(variant),
                *(score.text() for score in scores),
                count_text(scores[:1]),
                *_paper_cells(variant, [f"{stream}_{name}" for name in _PAPER_SCORES]),
            ]
        )
    return Table(
        f"main-{stream}",
        f"Forgetting {task_label(stream)}",
        ["Method", *titles, "n", *(f"{title} (paper)" for title in paper_titles)],
        rows,
        f"{_INTERVALS} F is accuracy on what is to be forgotten (lower is better), "
        f"R on what is to be kept. {models_note(run)}",
    )


def _paper_cells(variant: str, names: list[str]) -> list[str]:
    numbers = main_table().get(_PAPER_NAMES.get(variant, variant), {})
    return [f"{numbers[name]:.2f}" if name in numbers else "" for name in names]
