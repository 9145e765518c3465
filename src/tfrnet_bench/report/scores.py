"""The scores of the streams, gathered by variant, stream and seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from tfrnet_bench.report.bench_run import NO_OP, Cell

NAMES = ("forget_average", "forget_final", "retain_average", "trade_off")


@dataclass(frozen=True)
class StreamScores:
    """The stream cells of a run."""

    cells: Sequence[Cell]

    @property
    def streams(self) -> list[str]:
        """The streams, in the order of their names."""
        return sorted({cell.stream for cell in self.cells})

    @property
    def main(self) -> list[str]:
        """The methods with their presets, the untouched model first."""
        return sorted({c.variant for c in self.cells if not c.is_ablation} | {NO_OP}, key=_rank)

    @property
    def ablations(self) -> list[str]:
        """The other variants."""
        return sorted({cell.variant for cell in self.cells if cell.is_ablation})

    def method_of(self, variant: str) -> str:
        """Return the method that a variant is one of."""
        return next((c.method for c in self.cells if c.variant == variant), variant)

    def of(self, variant: str, stream: str) -> list[Cell]:
        """Return the cells of a variant on a stream, one for each seed."""
        return [c for c in self.cells if (c.variant, c.stream) == (variant, stream)]

    def by_seed(self, variant: str, stream: str, name: str) -> dict[int, float]:
        """Return one score for each seed.

        Where the untouched model has no cells of its own, its scores are those that the other
        cells measured before their first request.
        """
        found = {
            cell.seed: cell.result["scores"][name]
            for cell in self.of(variant, stream)
            if _has(cell.result.get("scores"), name)
        }
        if found or variant != NO_OP:
            return found
        return {
            cell.seed: cell.result["untouched"][name]
            for cell in self.cells
            if cell.stream == stream and _has(cell.result.get("untouched"), name)
        }

    def means_over_streams(self, variant: str, name: str) -> list[float]:
        """Return the mean over all streams for each seed that has them all."""
        values = [self.by_seed(variant, stream, name) for stream in self.streams]
        seeds = set.intersection(*(set(by_seed) for by_seed in values)) if values else set()
        return [fmean(by_seed[seed] for by_seed in values) for seed in sorted(seeds)]

    def last_checkpoint(self, stream: str) -> str:
        """Return the number of the last request at which a stream was measured."""
        numbers = {
            max(point["request"] for point in cell.result["checkpoints"])
            for cell in self.cells
            if cell.stream == stream and cell.result.get("checkpoints")
        }
        return " or ".join(map(str, sorted(numbers))) or "end"


def _has(scores: Any, name: str) -> bool:
    return isinstance(scores, dict) and isinstance(scores.get(name), int | float)


def _rank(variant: str) -> tuple[bool, str]:
    return (variant != NO_OP, variant)
