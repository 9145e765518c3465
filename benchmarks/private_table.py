"""The tables of notebook/private.md: LUME and KnowUnDo, from the cells of `tfrnet bench`.

Those with more retain data, of `thorough, firm`, of the retrained models and of the tuning seeds
are by benchmarks.calibrated.

python -m benchmarks.private_table
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from statistics import fmean

from benchmarks.default_table import Row, losses, read_cells
from tfrnet.evaluation.metrics.oracle import loss_distance
from tfrnet_bench.document import fill_document
from tfrnet_bench.honest import honest
from tfrnet_bench.results import CellResult, read_run
from tfrnet_bench.tables.published_table import published_tables
from tfrnet_bench.tables.table import Table

ROOT = Path(__file__).parent
RUN = ROOT / "results" / "private"
THOROUGH = ROOT / "results" / "private-thorough"
PAGE = ROOT / "notebook" / "private.md"
_STREAMS = {"lume": "LUME", "knowundo": "KnowUnDo"}
_TFR = "tfr"
_RIVALS = {"simnpo": "SimNPO", "npo": "NPO", "graddiff": "GradDiff"}
_TUNING_SEED = 1000
# `thorough` with a tight guard, every retain answer held alike, and a fall against what comes back.
FIRM = "thorough, firm"


@dataclass(frozen=True)
class Result:
    """What a method did to one stream of twenty requests."""

    seed: int
    honest: float
    forgotten: float
    kept: float
    not_yet: float
    fresh: float
    losses: Sequence[float]
    accepted: int
    requests: int
    fluency: float | None = None


def private_tables() -> list[Table]:
    """Return what each method did to each stream, and the published scores."""
    return [
        _stream_table(),
        _course_table(),
        _tuning_table(),
        _settings_table(),
        *published_tables(read_run(RUN)),
    ]


def of_bench(run: Path, stream: str, variant: str) -> list[Result]:
    """Return what a variant of a run did, by seed."""
    return [_result_of(cell) for cell in cells_of(run, stream, variant)]


def cells_of(run: Path, stream: str, variant: str) -> list[CellResult]:
    """Return the cells of a variant, by seed."""
    found = [cell for cell in _results(run) if (cell.stream, cell.variant) == (stream, variant)]
    return sorted(found, key=lambda cell: cell.seed)


@cache
def _results(run: Path) -> Sequence[CellResult]:
    return read_run(run).results


def _result_of(cell: CellResult) -> Result:
    found = honest(cell)
    return Result(
        cell.seed,
        *(_number(found[n]) for n in ("honest_trade_off", "forgotten", "kept", "unseen")),
        fresh=_number(found["witness"]),
        losses=cell.items["losses"]["after"],
        accepted=sum(request["outcome"] == "accepted" for request in cell.requests),
        requests=len(cell.requests),
        fluency=found["perplexity_ratio"],
    )


def _number(value: float | None) -> float:
    if value is None:
        raise ValueError("a cell lacks a figure of the table")
    return value


def of_rows(stream: str, candidate: str) -> list[Result]:
    """Return what a candidate of benchmarks.calibrated did, by seed."""
    return [
        Result(
            row["seed"],
            *(row["honest"], row["forgetting"], row["keeping"], row["not_yet"]),
            fresh=row["fresh_ratio"],
            losses=list(losses(row["checkpoints"][-1])),
            accepted=row["accepted"],
            requests=row["requests"],
        )
        for row in rows_of(stream, candidate)
    ]


def rows_of(stream: str, candidate: str) -> list[Row]:
    """Return the rows of a candidate, by seed."""
    found = [
        row
        for row in read_cells("private")
        if (row["task"], row["candidate"]) == (stream, candidate)
    ]
    return sorted(found, key=lambda row: row["seed"])


def retrained(stream: str) -> dict[int, Row]:
    """Return the cells of the model that never saw the people of a stream, by seed."""
    return {row["seed"]: row for row in rows_of(stream, "oracle")}


def _methods(stream: str) -> Iterator[tuple[str, list[Result]]]:
    yield "TFR-Net (default)", of_bench(RUN, stream, _TFR)
    yield "TFR-Net, `thorough`", of_bench(THOROUGH, stream, _TFR)
    more = {"lume": "1,200", "knowundo": "340"}[stream]
    yield f"TFR-Net, `thorough`, {more} to keep", of_rows(stream, "thorough, more retain data")
    yield "TFR-Net, `thorough`, firm", of_rows(stream, FIRM)
    for variant, label in _RIVALS.items():
        yield label, of_bench(RUN, stream, variant)


def _stream_table() -> Table:
    rows = []
    for stream, title in _STREAMS.items():
        oracles = retrained(stream)
        for label, found in _methods(stream):
            rows.append(
                [
                    *(title, label, ", ".join(str(each.seed) for each in found)),
                    " ".join(f"{each.honest:.1f}" for each in found),
                    *(_mean(found, name) for name in ("forgotten", "kept", "not_yet")),
                    f"x{fmean(each.fresh for each in found):.0f}",
                    f"{fmean(chain(*(each.losses for each in found))):.1f}",
                    _distance(found, oracles),
                    _fluency(found),
                    f"{sum(r.accepted for r in found)} of {sum(r.requests for r in found)}",
                ]
            )
        rows.append(_oracle_row(stream, title, oracles))
    return Table(
        "streams",
        "People's data, 20 requests",
        [
            *("Set", "Method", "Seeds", "Honest Trade-off", "Forgotten %", "Kept %"),
            *("Not yet requested %", "Fresh loss", "Nats", "Distance", "Fluency", "Accepted"),
        ],
        rows,
    )


def _mean(found: Sequence[Result], name: str) -> str:
    return f"{fmean(getattr(each, name) for each in found):.0f}"


def _fluency(found: Sequence[Result]) -> str:
    ratios = [each.fluency for each in found if each.fluency is not None]
    return f"x{fmean(ratios):.0f}" if ratios else ""


def _distance(found: Sequence[Result], oracles: dict[int, Row]) -> str:
    """Return how far the losses of requested answers are from a retrained model's."""
    pairs = [(each.losses, list(losses(oracles[each.seed]))) for each in found]
    return f"{fmean(loss_distance(own, other) for own, other in pairs):.2f}"


def _oracle_row(stream: str, title: str, oracles: dict[int, Row]) -> list[str]:
    untouched = {cell.seed: cell for cell in cells_of(RUN, stream, _TFR)}
    forgotten, kept = [], []
    for seed, row in oracles.items():
        right = untouched[seed].items["correct"][0]  # of all facts, not only the fixed hundred
        known = 100 * right.count("1") / len(right)
        forgotten.append(100 * (1 - fmean(row["by_request"]) / known))
        held = fmean(untouched[seed].checkpoints[0]["retain"].values())
        kept.append(100 * fmean(row["heldout"].values()) / held)
    nats = fmean(chain(*(losses(row) for row in oracles.values())))
    seeds = ", ".join(map(str, oracles))
    figures = (f"{fmean(forgotten):.0f}", f"{fmean(kept):.0f}", "", "", f"{nats:.1f}", "", "", "")
    return [title, "*a retrained model*", seeds, "", *figures]


def _course_table() -> Table:
    rows = []
    for stream, title in _STREAMS.items():
        cells = cells_of(RUN, stream, _TFR)
        for place, point in enumerate(cells[0].checkpoints):
            done = point["request"]
            rows.append(
                [
                    *(title, done),
                    f"{fmean(_kept(cell, place) for cell in cells):.0f}",
                    f"{fmean(_guard(cell, done) for cell in cells):.3f}",
                    f"{fmean(_depth(cell, done) for cell in cells):.1f}" if done else "",
                ]
            )
    return Table(
        "course",
        "The default after 0, 5, 10, 15 and 20 requests, means over seeds",
        [
            "Set",
            "Requests",
            "Held-out, word for word %",
            "Guard loss",
            "Forget loss of the last five",
        ],
        rows,
    )


def _kept(cell: CellResult, place: int) -> float:
    return fmean(cell.checkpoints[place]["retain"].values())


def _guard(cell: CellResult, done: int) -> float:
    """Return the guard loss after so many requests."""
    if done == len(cell.requests):
        last = cell.requests[-1]
        name = "guard_loss_after" if last["outcome"] == "accepted" else "guard_loss_before"
        return float(last[name])
    return float(cell.requests[done]["guard_loss_before"])


def _depth(cell: CellResult, done: int) -> float:
    """Return the mean forget loss of five requests, each right after it."""
    return fmean(request["forget_loss_after"] for request in cell.requests[done - 5 : done])


def _tuning_table() -> Table:
    rows = []
    for row in read_cells("private"):
        if row["seed"] != _TUNING_SEED:
            continue
        scores = (f"{row[name]:.0f}" for name in ("forgetting", "keeping"))
        rest = (f"x{row['fresh_ratio']:.1f}", f"{row['guard_last']:.3f}")
        rows.append([row["candidate"], f"{row['honest']:.1f}", *scores, *rest])
    return Table(
        "tuning",
        "Five requests of LUME, a tuning seed",
        ["Settings", "Honest Trade-off", "Forgotten %", "Kept %", "Fresh loss", "Guard loss"],
        rows,
    )


def _settings_table() -> Table:
    """Return what settings and rules do to five requests of two tuning seeds."""
    rows = []
    tried = read_cells("private-tuning")
    for stream, title in _STREAMS.items():
        for candidate in dict.fromkeys(row["candidate"] for row in tried):
            found = [r for r in tried if (r["task"], r["candidate"]) == (stream, candidate)]
            if not found:
                continue
            found.sort(key=lambda row: row["seed"])
            means = {
                name: fmean(row[name] for row in found)
                for name in ("forgetting", "keeping", "nats_after")
            }
            rows.append(
                [
                    *(title, candidate, " ".join(f"{row['honest']:.1f}" for row in found)),
                    *(f"{means[name]:.0f}" for name in ("forgetting", "keeping")),
                    " ".join(f"x{row['fresh_ratio']:.1f}" for row in found),
                    f"{means['nats_after']:.1f}",
                    f"{sum(r['accepted'] for r in found)} of {sum(r['requests'] for r in found)}",
                ]
            )
    return Table(
        "settings",
        "Five requests, two tuning seeds, 240 retain examples",
        [
            *("Set", "Settings", "Honest Trade-off", "Forgotten %", "Kept %", "Fresh loss"),
            *("Nats", "Accepted"),
        ],
        rows,
    )


if __name__ == "__main__":
    PAGE.write_text(fill_document(PAGE.read_text(), private_tables()))
