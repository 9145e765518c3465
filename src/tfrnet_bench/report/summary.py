"""The start of the page: what was run, and the main result in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from tfrnet.evaluation.metrics.intervals import Interval, t_interval
from tfrnet_bench.constants import STREAM, UNTOUCHED
from tfrnet_bench.report.method_scores import MethodScores
from tfrnet_bench.results import Run


@dataclass(frozen=True)
class _Mean:
    variant: str
    value: float
    interval: Interval | None

    def words(self) -> str:
        if self.interval is None:
            return f"{self.value:.1f} (one seed, so no interval)"
        low, high = self.interval
        return f"{self.value:.1f} (95 % interval {low:.1f} to {high:.1f})"

    def overlaps(self, other: _Mean) -> bool:
        if self.interval is None or other.interval is None:
            return False
        return self.interval.low <= other.interval.high and other.interval.low <= self.interval.high


def facts(values: Mapping[str, object]) -> str:
    """Return names and values as a definition list, without empty ones."""
    rows = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(str(value))}</dd></div>"
        for name, value in values.items()
        if value not in (None, "")
    )
    return f"<dl class=facts>{rows}</dl>"


def paragraphs(sentences: Sequence[str]) -> str:
    """Return sentences as paragraphs."""
    return "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)


def what_was_run(run: Run) -> dict[str, object]:
    """Return the facts of a run."""
    results = run.results
    kinds = sorted({result.kind for result in results})
    seconds = sum(result.seconds.get("total", 0.0) for result in results)
    return {
        "experiments": _listed(_experiments(run) or kinds),
        "cells": f"{len(results)} finished, {len(run.failures)} failed"
        + (f", {len(run.unfinished)} without a result" if run.unfinished else ""),
        "by kind": ", ".join(f"{kind} {len(run.of_kind(kind))}" for kind in kinds),
        "streams": _listed(sorted({result.stream for result in run.of_kind(STREAM)})),
        "methods": _listed(sorted({result.method for result in results})),
        "variants": len({result.variant for result in results}),
        "seeds": _listed(sorted({result.seed for result in results})),
        "settings differ between seeds": _listed("/".join(cell) for cell in run.mixed),
        "models": _listed(sorted({result.model.get("name", "") for result in results})),
        "devices": _listed(sorted({result.device for result in results})),
        "time in all": f"{seconds / 3600:.1f} hours" if seconds > 7200 else f"{seconds:.0f} s",
    }


def main_result(scores: MethodScores) -> list[str]:
    """Say which method has the best mean Trade-off, and how the others and no method compare."""
    means = []
    for variant in scores.main:
        if values := scores.means_over_streams(variant, "trade_off"):
            means.append(_Mean(variant, *t_interval(values)))
    means.sort(key=lambda mean: -mean.value)
    untouched = next((mean for mean in means if mean.variant == UNTOUCHED), None)
    ranked = [mean for mean in means if mean is not untouched]
    if not ranked:
        return ["No method has finished all streams on one seed, so there is no mean Trade-off."]
    best = ranked[0]
    leaders = [mean.variant for mean in ranked if mean.value == best.value]
    others = ranked[len(leaders) :]
    where = (
        f"over the {len(scores.averaged)} streams" if len(scores.averaged) > 1 else "on the stream"
    )
    said = [
        f"The highest mean Trade-off {where} ({_listed(scores.averaged)}) is that of "
        f"{_listed(leaders)}: {best.words()}."
    ]
    if others:
        said.append(f"After it: {', '.join(f'{m.variant} {m.value:.1f}' for m in others)}.")
    if close := [mean.variant for mean in others if mean.overlaps(best)]:
        said.append(f"Intervals that overlap with the best one's: {_listed(close)}.")
    if untouched:
        below = [mean.variant for mean in ranked if mean.value <= untouched.value]
        said.append(
            f"The untouched model ({UNTOUCHED}) has {untouched.words()}: a Trade-off is to be read "
            "against it"
            + (f"; not above it: {_listed(below)}." if below else ", and every method is above it.")
        )
    have_mean = {mean.variant for mean in means}
    if partial := [v for v in scores.main if v not in have_mean and v != UNTOUCHED]:
        said.append(f"Not finished on all streams, so without a mean: {_listed(partial)}.")
    return said


def _listed(values: object) -> str:
    if isinstance(values, str):
        return values
    return ", ".join(str(value) for value in values if value != "")  # type: ignore[attr-defined]


def _experiments(run: Run) -> list[str]:
    """Return the experiments of all plans that the run was made with."""
    return list(dict.fromkeys(name for plan in run.plans for name in plan["experiments"]))
