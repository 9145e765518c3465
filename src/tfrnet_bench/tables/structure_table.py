"""The paper's structural figures as numbers: relevant channels, and what masks left of a model."""

from __future__ import annotations

from collections.abc import Callable

from tfrnet_bench.constants import STREAM
from tfrnet_bench.results import CellResult, Run
from tfrnet_bench.tables.labels import CONTROL, task_label, variant_label
from tfrnet_bench.tables.table import Table

STRUCTURE_VARIANTS = ("tfr", "tfr-no-recovery", CONTROL)
SHARES = ("core", "new", "recurring")


def structure_tables(run: Run) -> list[Table]:
    """Return a table for each stream that TFR-Net or a structural control was tried on."""
    return [
        _stream_table(run, stream)
        for stream in run.streams(STREAM)
        if set(run.variants(STREAM, stream)) & set(STRUCTURE_VARIANTS)
    ]


def _stream_table(run: Run, stream: str) -> Table:
    requests = sorted({1, *run.checkpoints()})
    rows = []
    for variant in STRUCTURE_VARIANTS:
        for request in requests:
            readers: list[tuple[Callable[[CellResult], float], int]] = [
                *((_share(name, request), 1) for name in SHARES),
                (_after("dormant", request), 1),
                (_after("capacity_loss", request), 2),
                (_by("suppressed_ever", request), 1),
                (_recovered(request), 1),
            ]
            rows.append(
                [
                    variant_label(variant),
                    str(request),
                    *(run.seeds(STREAM, stream, variant, r).text(d) for r, d in readers),
                    str(len(run.by_seed(STREAM, stream, variant))),
                ]
            )
    return Table(
        f"structure-{stream}",
        f"Relevant and suppressed channels, forgetting {task_label(stream)}",
        [
            "Variant",
            "Request",
            "Core %",
            "New %",
            "Recurring %",
            "Dormant",
            "Capacity loss %",
            "Suppressed ever",
            "Recovered so far",
            "n",
        ],
        rows,
        "Of the channels of highest risk at a request: relevant at the first request (core), for "
        "the first time (new), or before but not at the first (recurring)."
        + _size_note(run, stream),
        text_columns=2,
    )


def _size_note(run: Run, stream: str) -> str:
    for variant in STRUCTURE_VARIANTS:
        for result in run.by_seed(STREAM, stream, variant).values():
            found = result.structure
            share = 100 * found["random_overlap"]
            return (
                f" {found['composition_size']} of {found['channels']} channels are ranked; as many "
                f"drawn at random would meet {share:.2f} % of an earlier set."
            )
    return ""


def _share(name: str, request: int) -> Callable[[CellResult], float]:
    return lambda result: 100 * float(result.structure["composition"][request - 1][name])


def _after(name: str, request: int) -> Callable[[CellResult], float]:
    """Return a reader of a list whose first entry is from before the first request."""
    return lambda result: float(result.structure[name][request])


def _by(name: str, request: int) -> Callable[[CellResult], float]:
    """Return a reader of a list with one entry per request."""
    return lambda result: float(result.structure[name][request - 1])


def _recovered(request: int) -> Callable[[CellResult], float]:
    return lambda result: float(sum(result.structure["recovered"][:request]))
