"""The scores of a run's streams as the page compares them: methods, and variants of methods."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from statistics import fmean

from tfrnet_bench.constants import STREAM, UNTOUCHED
from tfrnet_bench.results import CellResult, Run

NAMES = ("forget_average", "forget_final", "retain_average", "trade_off")


class MethodScores:
    """The finished stream cells of a run by variant, stream and seed."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.results = run.of_kind(STREAM)

    @cached_property
    def streams(self) -> list[str]:
        """The streams, sorted by name."""
        return sorted({result.stream for result in self.results})

    @cached_property
    def averaged(self) -> list[str]:
        """The streams that are averaged, sorted by name."""
        return sorted(set(self.run.averaged_streams) & set(self.streams))

    @cached_property
    def main(self) -> list[str]:
        """The methods with their presets, the untouched model first."""
        methods = {r.variant for r in self.results if not (r.is_ablation or r.is_oracle)}
        return [UNTOUCHED, *sorted(methods - {UNTOUCHED})]

    @cached_property
    def ablations(self) -> list[str]:
        """The other variants."""
        return sorted({result.variant for result in self.results if result.is_ablation})

    def method_of(self, variant: str) -> str:
        """Return the method that a variant is one of."""
        return next((r.method for r in self.results if r.variant == variant), variant)

    def of(self, variant: str, stream: str) -> list[CellResult]:
        """Return the results of a variant on a stream, one for each seed."""
        return list(self.run.by_seed(STREAM, stream, variant).values())

    def by_seed(self, variant: str, stream: str, name: str) -> dict[int, float]:
        """Return one score for each seed.

        Where the untouched model has no cells of its own, its scores are those that the other
        cells measured before their first request.
        """
        found = {
            result.seed: result.scores[name]
            for result in self.of(variant, stream)
            if _has(result.scores, name)
        }
        if found or variant != UNTOUCHED:
            return found
        return {
            result.seed: result.untouched[name]
            for result in self.results
            if result.stream == stream and _has(result.untouched, name)
        }

    def means_over_streams(self, variant: str, name: str) -> list[float]:
        """Return the mean over the averaged streams for each seed that has them all."""
        values = [self.by_seed(variant, stream, name) for stream in self.averaged]
        seeds = set.intersection(*(set(by_seed) for by_seed in values)) if values else set()
        return [fmean(by_seed[seed] for by_seed in values) for seed in sorted(seeds)]

    def last_checkpoint(self, stream: str) -> str:
        """Return the number of the last request at which a stream was measured."""
        numbers = {
            max(point["request"] for point in result.checkpoints)
            for result in self.results
            if result.stream == stream and result.checkpoints
        }
        return " or ".join(map(str, sorted(numbers))) or "end"


def _has(scores: Mapping[str, float], name: str) -> bool:
    return isinstance(scores.get(name), int | float)
