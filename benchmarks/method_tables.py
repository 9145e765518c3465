"""The tables of notebook/methods.md, from the results beside this file.

python -m benchmarks.method_tables
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from tfrnet.data.protocol import STREAMS
from tfrnet_bench.search.rows import read_rows

RESULTS = Path(__file__).parent / "results"
Row = Mapping[str, Any]
_PRESET_LABELS = {"default": "source", "tuned": "tuned"}


def search_table() -> list[str]:
    """Return what the search found: every method at its defaults and as tuned."""
    rows = read_rows(RESULTS / "search" / "trials.jsonl")
    chosen = json.loads((RESULTS / "search" / "chosen.json").read_text())
    lines = [
        "| method | settings | F arithmetic | F OpenBookQA | F BoolQ | R | Trade-off |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        _search_line("untouched", "", _of(rows, "none", 0)),
    ]
    for name, best in sorted(chosen.items(), key=lambda entry: -entry[1]["trade_off"]):
        lines.append(_search_line(name, "source", _of(rows, name, 0)))
        if best["point"]:
            lines.append(_search_line(name, "tuned", _of(rows, name, best["point"])))
        else:
            lines[-1] = lines[-1].replace("| source |", "| source = tuned |")
    return lines


def chosen_table() -> list[str]:
    """Return the settings that the search chose."""
    chosen = json.loads((RESULTS / "search" / "chosen.json").read_text())
    lines = ["| method | chosen | of points |", "| --- | --- | --- |"]
    for name, best in sorted(chosen.items()):
        settings = ", ".join(
            f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}"
            for key, value in best["settings"].items()
        )
        lines.append(f"| {name} | {settings} | {best['points_tried']} |")
    return lines


def cost_table() -> list[str]:
    """Return what the first request did and cost under every method."""
    result = json.loads((RESULTS / "methods-h200.json").read_text())
    lines = [
        "| method | settings | trained | forget loss | guard loss | s | peak | state | moved "
        "| inference |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in result["rows"]:
        lines.append(
            f"| {row['method']} | {_PRESET_LABELS[row['preset']]} | {row['trained']} | "
            f"{row['forget_loss'][1]:.5f} | "
            f"{row['guard_loss'][1]:.4f} | {row['seconds']:.2f} | "
            f"{row['peak_above_before'] / 1e9:.2f} GB | {row['state_bytes'] / 1e6:.1f} MB | "
            f"{100 * row['changed']:.1f} % | {row['inference']:.1f} |"
        )
    return lines


def first_request_table() -> list[str]:
    """Return the forget loss of the first request of each tuning stream, as tuned."""
    rows = read_rows(RESULTS / "search" / "trials.jsonl")
    chosen = json.loads((RESULTS / "search" / "chosen.json").read_text())
    before = [_first(_of(rows, "ga", 0), stream)["forget_loss_before"] for stream in STREAMS]
    lines = [
        "| method, as tuned | arithmetic | OpenBookQA | BoolQ |",
        "| --- | --- | --- | --- |",
        "| before | " + " | ".join(f"{value:.3f}" for value in before) + " |",
    ]
    for name, best in sorted(chosen.items()):
        found = _of(rows, name, best["point"])
        after = [_first(found, stream)["forget_loss_after"] for stream in STREAMS]
        lines.append(f"| {name} | " + " | ".join(f"{value:.3f}" for value in after) + " |")
    return lines


def _of(rows: Sequence[Row], method: str, point: int) -> dict[str, Row]:
    return {r["stream"]: r for r in rows if (r["method"], r["point"]) == (method, point)}


def _first(rows: Mapping[str, Row], stream: str) -> Row:
    found: Row = rows[stream]["outcomes"][0]
    return found


def _search_line(name: str, label: str, rows: Mapping[str, Row]) -> str:
    forget = " | ".join(f"{rows[stream]['forget_accuracy']:.1f}" for stream in STREAMS)
    retain = fmean(fmean(row["heldout_accuracy"].values()) for row in rows.values())
    score = fmean(row["trade_off"] for row in rows.values())
    return f"| {name} | {label} | {forget} | {retain:.1f} | {score:.2f} |"


TABLES = (search_table, chosen_table, first_request_table, cost_table)


if __name__ == "__main__":
    for table in TABLES:
        print("\n".join(table()), end="\n\n")
