"""The cells of a run by what they measure, with those that failed or never ran."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tfrnet.core.errors import InputError
from tfrnet.data.protocol import STREAMS
from tfrnet.evaluation.metrics.continual import CHECKPOINTS
from tfrnet_bench.results import FailedCell, Result, cell_key, check_reported_seeds
from tfrnet_bench.tables.labels import in_order
from tfrnet_bench.tables.seeds import Seeds


class Cells:
    """Results and failures of a run, to be asked for numbers by kind, stream and variant."""

    def __init__(self, results: Sequence[Result], failed: Sequence[FailedCell] = ()) -> None:
        check_reported_seeds(results)
        self._results = {cell_key(result): result for result in results}
        if len(self._results) < len(results):
            raise InputError("there are two results of one cell")
        self._failed = {(cell.kind, cell.stream, cell.variant, cell.seed) for cell in failed}
        self._failed -= self._results.keys()

    def results(self, kind: str, stream: str, variant: str) -> dict[int, Result]:
        """Return the results by seed."""
        keys = sorted(key for key in self._results if key[:3] == (kind, stream, variant))
        return {key[3]: self._results[key] for key in keys}

    def of_kind(self, kind: str) -> list[Result]:
        """Return all results of a kind."""
        return [self._results[key] for key in sorted(self._results) if key[0] == kind]

    def streams(self, kind: str) -> list[str]:
        """Return the streams that were tried."""
        found = {key[1] for key in self._tried() if key[0] == kind}
        return [name for name in STREAMS if name in found] + sorted(found.difference(STREAMS))

    def variants(self, kind: str, stream: str | None = None) -> list[str]:
        """Return the variants that were tried, in the order of rows."""
        return in_order(
            key[2] for key in self._tried() if key[0] == kind and stream in (None, key[1])
        )

    def seeds(
        self, kind: str, stream: str, variant: str, number: Callable[[Result], float | None]
    ) -> Seeds:
        """Return a number of each seed's result; seeds of other variants were to be run too."""
        return Seeds(
            {s: number(result) for s, result in self.results(kind, stream, variant).items()},
            frozenset(key[3] for key in self._tried() if key[:2] == (kind, stream)),
            frozenset(key[3] for key in self._failed if key[:3] == (kind, stream, variant)),
        )

    def checkpoints(self) -> tuple[int, ...]:
        """Return the requests after which streams were measured; the last one ends the stream."""
        found = {
            tuple(point["request"] for point in result["checkpoints"] if point["request"])
            for result in self.of_kind("stream")
        }
        if len(found) > 1:
            raise InputError(
                "the results are measured after different requests: they do not belong in one table"
            )
        return found.pop() if found else CHECKPOINTS

    def _tried(self) -> Iterable[tuple[str, str, str, int]]:
        return self._results.keys() | self._failed
