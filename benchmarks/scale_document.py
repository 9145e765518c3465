"""Fill the tables of notebook/scale.md from the results of `benchmarks.scale` and `.processes`.

python -m benchmarks.scale_document
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.scale_case import ALL_CHANNELS, METHOD_LENGTH, OVER_LENGTHS, VARIANTS
from benchmarks.scale_results import Record
from benchmarks.scale_shapes import SHAPES
from tfrnet_bench.document import fill_document
from tfrnet_bench.tables.table import Table

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "scale-h200.json"
# Streams that were run elsewhere are told beside those of RESULTS.
MORE_STREAMS = ROOT / "benchmarks" / "results" / "scale-growth-cpu.json"
# The same machine with only so much of its memory left.
SMALL_CARDS = [ROOT / "benchmarks" / "results" / f"scale-{size}gb.json" for size in (24, 16)]
# What RESULTS has, measured at other times.
AGAIN = ROOT / "benchmarks" / "results" / "scale-h200-again.json"
PROCESSES = ROOT / "benchmarks" / "results" / "processes-h200.json"
DOCUMENT = ROOT / "benchmarks" / "notebook" / "scale.md"
_COST_COLUMNS = ("Seconds a request", "Floor", "Scoring, share of rate", "Peak / weights")
_PASS_COLUMN = "Tokens in a pass, at most"
_GROWTH_COLUMNS = {
    "Seconds": ("seconds", 1.0),
    "Process (MB)": ("resident_bytes", 1e6),
    "GPU (MB)": ("gpu_bytes", 1e6),
    "State (MB)": ("generation_bytes", 1e6),
    "Folder (MB)": ("folder_bytes", 1e6),
    "Ledger (MB)": ("ledger_bytes", 1e6),
}
# What a request with `deep` does, by the names of its outcome's `seconds`.
_STAGE_COLUMNS = {
    "Scores": "score",
    "Guard's gradients": "guard_gradients",
    "Forget margins": "margins",
    "Retain losses": "retain_loss",
    "Solver": "solve",
    "Guard": "guard",
    "Forget loss": "forget_loss",
    "All": "total",
}
_DEFAULT_METHODS = ("tfr", "tfr-compiled")
_COLUMNS = ("Method", "Steps", *_COST_COLUMNS, "State (MB)")


def main() -> None:
    DOCUMENT.write_text(fill_document(DOCUMENT.read_text(), tables()))


def tables() -> list[Table]:
    """Return all tables of the document."""
    documents = [json.loads(path.read_text()) for path in (RESULTS, MORE_STREAMS)]
    cases = documents[0]["cases"]
    return [
        *method_tables(cases),
        stages_table(cases),
        lengths_table(cases),
        channels_table(cases),
        growth_table(documents),
        cards_table([json.loads(path.read_text()) for path in SMALL_CARDS]),
        processes_table(json.loads(PROCESSES.read_text())),
    ]


def method_tables(cases: Sequence[Record]) -> list[Table]:
    """Return all methods on each shape, at the length and on the channels that all share."""
    tables = []
    for shape in SHAPES:
        wanted = {"shape": shape, "length": METHOD_LENGTH, "channels": ALL_CHANNELS}
        found = [record for record in cases if wanted.items() <= record["case"].items()]
        found.sort(key=lambda record: list(VARIANTS).index(record["case"]["method"]))
        rows = [_row(record) for record in found]
        tables.append(Table(f"scale-{shape}", f"One request on the {shape} shape", _COLUMNS, rows))
    return tables


def stages_table(cases: Sequence[Record]) -> Table:
    """Return what the seconds of a request with the settings `deep` go to."""
    found = [
        record
        for record in cases
        if record["case"]["method"] in _DEFAULT_METHODS and "error" not in record
    ]
    found.sort(key=lambda record: (_size(record), record["case"]["method"]))
    rows = [
        [
            *(record["case"]["shape"], record["case"]["method"]),
            *(f"{record['seconds_by_stage'][stage]:.2f}" for stage in _STAGE_COLUMNS.values()),
        ]
        for record in found
    ]
    columns = ("Shape", "Method", *_STAGE_COLUMNS)
    title = "Seconds of a request with the settings `deep`, by stage"
    return Table("scale-stages", title, columns, rows, text_columns=2)


def lengths_table(cases: Sequence[Record]) -> Table:
    """Return the method that is measured at several lengths."""
    found = [record for record in _measured(cases) if record["case"]["channels"] == ALL_CHANNELS]
    found.sort(key=lambda record: (_size(record), record["case"]["length"]))
    rows = [
        [r["case"]["shape"], str(r["case"]["length"]), *_costs(r), _pass_tokens(r)] for r in found
    ]
    columns = ("Shape", "Tokens", *_COST_COLUMNS, _PASS_COLUMN)
    return Table("scale-lengths", f"{OVER_LENGTHS}, by length", columns, rows)


def channels_table(cases: Sequence[Record]) -> Table:
    """Return the same method with fewer projections masked."""
    found = [record for record in _measured(cases) if record["case"]["length"] == METHOD_LENGTH]
    found.sort(key=lambda record: (_size(record), -record["channels"]))
    rows = [
        [
            *(r["case"]["shape"], r["case"]["channels"], f"{r['channels']:,}"),
            *(*_costs(r), _pass_tokens(r)),
        ]
        for r in found
    ]
    columns = ("Shape", "Projections", "Channels", *_COST_COLUMNS, _PASS_COLUMN)
    return Table("scale-channels", f"{OVER_LENGTHS}, by channels", columns, rows, text_columns=2)


def growth_table(documents: Sequence[Record]) -> Table:
    """Return how the streams began and ended: medians of their first and last requests."""
    rows = []
    for document in documents:
        for stream in document["growth"]:
            if not stream["requests"]:  # it ended before the first
                continue
            ends = stream["summary"]
            rows.append(
                [
                    document["machine"]["device"],
                    stream["shape"],
                    stream["settings"]["step"],
                    str(len(stream["requests"]["seconds"])),
                    *(_from_to(ends[name], unit) for name, unit in _GROWTH_COLUMNS.values()),
                ]
            )
    columns = ("Machine", "Shape", "Step", "Requests", *_GROWTH_COLUMNS)
    return Table("scale-growth", "Long streams, first to last", columns, rows, text_columns=3)


def cards_table(documents: Sequence[Record]) -> Table:
    """Return what a request costs where only some of a GPU's memory is left."""
    rows = []
    for document in documents:
        for record in document["cases"]:
            size, method = document["machine"]["left_bytes"] / 1e9, record["case"]["method"]
            row = [
                f"{size:g}",
                record["case"]["shape"],
                method,
                record.get("error", ""),
                "",
                "",
                "",
            ]
            if "error" not in record:
                peak = f"{record['peak_bytes'] / 1e9:.1f}"
                seconds, _, _, times = _costs(record)
                row[3:] = [seconds, peak, times, _pass_tokens(record)]
            rows.append(row)
    columns = ("Card (GB)", "Shape", "Method", "Seconds a request", "Peak (GB)", "Peak / weights")
    title = "One request on a card of another size"
    return Table("scale-cards", title, (*columns, _PASS_COLUMN), rows, text_columns=3)


def processes_table(document: Record) -> Table:
    """Return whether several processes on one GPU came to the same bits."""
    rows = [
        [
            str(trial["processes"]),
            trial["backend"] or "alone",
            "spread (FSDP2)" if trial["spread"] else "whole in each",
            trial.get("error") or ("the same" if trial["same"] else "other ones"),
            f"{trial['seconds'][-1]:.2f}" if "seconds" in trial else "",
            f"{peak / 1e6:.0f}" if (peak := trial.get("peak_bytes_of_the_first")) else "",
        ]
        for trial in document["trials"]
    ]
    columns = (
        "Processes",
        "Meet by",
        "Weights",
        "Bits",
        "Last request (s)",
        "Peak of the first (MB)",
    )
    title = f"Processes that share one GPU, {document['shape']} shape"
    return Table("scale-processes", title, columns, rows, text_columns=4)


def _pass_tokens(record: Record) -> str:
    tokens = record["passes"]["tokens"]
    return f"{tokens:,}" if tokens else ""


def _from_to(ends: Record, unit: float) -> str:
    return " to ".join(_short(ends[end] / unit) for end in ("first", "last"))


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 1000 else f"{number:.3g}"


def _measured(cases: Sequence[Record]) -> list[Record]:
    return [r for r in cases if r["case"]["method"] == OVER_LENGTHS and "error" not in r]


def _size(record: Record) -> int:
    return list(SHAPES).index(record["case"]["shape"])


def _row(record: Record) -> list[str]:
    method = record["case"]["method"]
    if "error" in record:
        return [method, "", record["error"], "", "", "", ""]
    steps, state = record["gradient_steps"] or "", record["state_bytes"] / 1e6
    return [method, f"{steps}", *_costs(record), f"{state:.1f}"]


def _costs(record: Record) -> list[str]:
    scoring = record.get("scoring")
    return [
        f"{record['seconds']:.2f}",
        f"{record['floor']['seconds']:.2f}",
        f"{100 * scoring['needed_share_of_rate']:.0f} %" if scoring else "",
        f"{record['peak_over_weights']:.2f}",
    ]


if __name__ == "__main__":
    main()
