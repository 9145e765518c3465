"""What is searched, and on what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from tfrnet.core.errors import InputError
from tfrnet.data.protocol import STREAMS, Sizes, Split, make_split
from tfrnet.data.sources import Source
from tfrnet.evaluation.metrics.continual import quarters
from tfrnet_bench.constants import FIRST_TUNING_SEED
from tfrnet_bench.run.provenance import model_identity
from tfrnet_bench.search.grid import search_space
from tfrnet_bench.search.rows import Row

# A stream with a seed.
Place = tuple[str, int]


@dataclass(frozen=True)
class SearchPlan:
    """A search. Every trial is a point on all streams and seeds."""

    methods: tuple[str, ...]
    streams: tuple[str, ...] = STREAMS
    seeds: tuple[int, ...] = (FIRST_TUNING_SEED, FIRST_TUNING_SEED + 1)
    requests: int = 20
    heldout: int = 100
    trials: int = 12
    model: str = "smollm2-tasks"
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if not self.seeds:
            raise InputError("the search has no seeds; give at least one")
        for seed in self.seeds:
            if seed < FIRST_TUNING_SEED:
                raise InputError(
                    f"seeds below {FIRST_TUNING_SEED} are for reporting; tune on another, "
                    f"such as {FIRST_TUNING_SEED}"
                )
        for method in self.methods:
            search_space(method)

    @property
    def places(self) -> list[Place]:
        """The streams with each of the seeds."""
        return list(product(self.streams, self.seeds))

    @property
    def cells(self) -> int:
        """How many streams are run, with those that only measure the untouched model."""
        return (self.trials * len(self.methods) + 1) * len(self.places)

    @property
    def checkpoints(self) -> tuple[int, ...]:
        """The requests after which a stream is measured."""
        return quarters(self.requests)

    @property
    def spread_trials(self) -> int:
        """How many trials are spread over the grid; the others go where the best is."""
        return max(1, self.trials // 3)

    @property
    def setup(self) -> dict[str, Any]:
        """What every row says of how it was measured, beside its stream and settings."""
        return {
            "model": {"name": self.model, "digest": model_identity(self.model)},
            "dtype": self.dtype,
            "heldout": self.heldout,
        }

    def own(self, rows: Sequence[Row]) -> list[Row]:
        """Return the results that belong to this plan; a file may hold those of others too."""
        places = set(self.places)
        return [
            row
            for row in self.alike(rows)
            if row["requests"] == self.requests and (row["stream"], row["seed"]) in places
        ]

    def alike(self, rows: Sequence[Row]) -> list[Row]:
        """Return the results of this plan's model, dtype and held-out size, on any stream.

        Rows of before do not say these: they were measured with the defaults.
        """
        digest = model_identity(self.model) if any("model" in row for row in rows) else ""
        return [
            row
            for row in rows
            if row.get("dtype", SearchPlan.dtype) == self.dtype
            and row.get("heldout", SearchPlan.heldout) == self.heldout
            and (
                row["model"]["digest"] == digest
                if "model" in row
                else self.model == SearchPlan.model
            )
        ]

    def splits(self, source: Source) -> dict[Place, Split]:
        """Return the tuning streams."""
        sizes = Sizes(
            requests=self.requests,
            forget_eval=min(Sizes().forget_eval, self.requests * 8),
            heldout=self.heldout,
        )
        return {place: make_split(*place, source, sizes) for place in self.places}
