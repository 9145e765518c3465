"""One cell of the grid: what is to be run."""

from __future__ import annotations

from dataclasses import dataclass

from tfrnet_bench.constants import Kind
from tfrnet_bench.run.variants import Variant
from tfrnet_bench.run_folder import CellKey


@dataclass(frozen=True)
class Cell:
    """A variant on one stream with one seed; `kind` says what is done and measured."""

    kind: Kind
    variant: Variant
    stream: str
    seed: int

    @property
    def key(self) -> CellKey:
        """What identifies it within a run."""
        return CellKey(self.kind, self.stream, self.variant.label, self.seed)
