"""The results file: written after every case, and read so that no case is run again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.scale_case import Case
from tfrnet.core.files import replace_file
from tfrnet_bench.run.provenance import code_commit

Record = dict[str, Any]
OUT_OF_MEMORY = "out of memory"
# What the 7B case is to reach on one H200, by the paper's rule and with `deep`, compiled too.
_TARGET_CASE = {"shape": "7b", "length": 256, "channels": "all-linear"}
_TARGET_METHODS = ("tfr-paper", "tfr-paper-compiled", "tfr", "tfr-compiled")
_MOST_SECONDS, _LEAST_SHARE, _MOST_MEMORY = 2.0, 0.45, 1.35


class Results:
    """A file of one machine's results."""

    def __init__(self, path: Path, machine: Mapping[str, Any]) -> None:
        self._path = path
        self.document: dict[str, Any] = {"machine": {}, "rates": {}, "targets": []}
        self.document |= {"cases": [], "growth": []}
        if path.exists():
            self.document |= json.loads(path.read_text())
        known = self.document["machine"]
        for fact in ("device", "left_bytes") if known else ():
            if known.get(fact) != machine.get(fact):
                raise SystemExit(
                    f"{path} is of another machine, {fact} {known.get(fact)}; give another file"
                )
        self.document["machine"] = dict(machine)

    @property
    def cases(self) -> list[Record]:
        """All records, in the order in which they were measured."""
        found: list[Record] = self.document["cases"]
        return found

    @property
    def growth(self) -> list[Record]:
        """All streams."""
        found: list[Record] = self.document["growth"]
        return found

    def is_finished(self, case: Case) -> bool:
        """Tell whether a case need not run again; too little memory will still be too little."""
        return any(
            record["case"] == case.to_dict() and record.get("error", "") in ("", OUT_OF_MEMORY)
            for record in self.cases
        )

    def has_stream(self, shape: str, count: int, batch_size: int | None, preset: str) -> bool:
        """Tell whether a stream was run to its end."""
        return any(
            (*_kind(stream), stream["batch_size"]) == (shape, preset, batch_size)
            and len(stream["requests"].get("seconds", ())) >= count
            for stream in self.growth
        )

    def add_case(self, case: Case, record: Record) -> None:
        """Keep a record in place of an older one of the same case, and save."""
        kept = [known for known in self.cases if known["case"] != case.to_dict()]
        self.document["cases"] = [
            *kept,
            {"case": case.to_dict(), "commit": code_commit()} | record,
        ]
        self.save()

    def add_stream(self, stream: Record) -> None:
        """Keep a stream in place of an older one of the same shape and preset, and save."""
        kept = [s for s in self.growth if _kind(s) != _kind(stream)]
        self.document["growth"] = [*kept, {"commit": code_commit()} | stream]
        self.save()

    def save(self) -> None:
        """Write everything; whoever reads meanwhile sees the old file or the new one."""
        self.document["targets"] = targets(self.cases)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self._path, _text(self.document).encode())


def _kind(stream: Record) -> tuple[str, str]:
    return stream["shape"], stream["preset"]


def targets(cases: list[Record]) -> list[Record]:
    """Return what was asked of the 7B case and what was measured, where it was."""
    found = []
    for record in cases:
        case = record["case"]
        is_asked = case["method"] in _TARGET_METHODS and _TARGET_CASE.items() <= case.items()
        if is_asked and "error" not in record:
            share = record["scoring"]["needed_share_of_rate"]
            rows = [
                ("seconds a request", "at most", _MOST_SECONDS, record["seconds"]),
                ("share of the matrix rate in scoring", "at least", _LEAST_SHARE, share),
                ("peak over weights", "at most", _MOST_MEMORY, record["peak_over_weights"]),
            ]
            found += [
                {
                    "method": case["method"],
                    "batch_size": case["batch_size"],
                    "what": what,
                    "target": f"{sense} {target:g}",
                    "measured": value,
                    "met": value <= target if sense == "at most" else value >= target,
                }
                for what, sense, target, value in rows
            ]
    return found


def _text(document: Mapping[str, Any]) -> str:
    """Return JSON with each record on a line of its own."""
    parts = []
    for name, value in document.items():
        if isinstance(value, list):
            lines = ",\n".join(f"  {json.dumps(item)}" for item in value)
            parts.append(f' "{name}": [\n{lines}\n ]' if value else f' "{name}": []')
        else:
            parts.append(f' "{name}": {json.dumps(value)}')
    return "{\n" + ",\n".join(parts) + "\n}\n"
