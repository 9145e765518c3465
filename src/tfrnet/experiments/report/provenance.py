"""Where the numbers come from: versions, commits, devices, inputs, settings."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import Any

from tfrnet.experiments.report.bench_run import BenchRun, Cell
from tfrnet.experiments.report.table import Row, Table, number, text

_DIGEST_LENGTH = 16


def origin_table(run: BenchRun) -> Table:
    """Return the distinct origins of the cells, each with the number of its cells."""
    counts = Counter(_origin(cell) for cell in run.cells)
    rows = [Row([*map(text, origin), number(count, 0)]) for origin, count in counts.most_common()]
    columns = ["Commit", "Device", "Dtype", "Versions", "Model", "Model digest", "Cells"]
    return Table("Origin of the cells", columns, rows, {})


def input_table(run: BenchRun) -> Table:
    """Return the digests of what the cells were given."""
    seeds: dict[tuple[str, str, str, str], set[int]] = defaultdict(set)
    for cell in run.cells:
        protocol = _settings_text(cell.result.get("protocol") or {})
        digest = str(cell.result.get("inputs", ""))[:_DIGEST_LENGTH]
        seeds[cell.kind, cell.stream, digest, protocol].add(cell.seed)
    rows = [
        Row([text(kind), text(stream), text(_numbers(found)), text(digest), text(protocol)])
        for (kind, stream, digest, protocol), found in sorted(seeds.items())
    ]
    columns = ["Kind", "Stream", "Seeds", "Inputs digest", "Protocol"]
    return Table("Inputs", columns, rows, {})


def settings_table(run: BenchRun) -> Table:
    """Return the settings of each variant; one that had several has several rows."""
    kinds: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for cell in run.cells:
        overrides = ", ".join(cell.result.get("overrides") or ())
        settings = _settings_text(cell.result.get("settings") or {})
        preset = str(cell.result.get("preset", ""))
        kinds[cell.variant, cell.method, preset, overrides, settings].add(cell.kind)
    rows = [
        Row([text(key[0]), text(", ".join(sorted(found))), *map(text, key[1:])])
        for key, found in sorted(kinds.items())
    ]
    columns = ["Variant", "Kinds", "Method", "Preset", "Overrides", "Settings"]
    return Table("Settings", columns, rows, {})


def failure_table(run: BenchRun) -> Table | None:
    """Return the cells without a result and why; None if there are none."""
    rows = [Row([text(failure.cell), text(failure.error)]) for failure in run.failures]
    rows += [
        Row([text(cell), text("neither a result nor an error yet")]) for cell in run.unfinished
    ]
    if not rows:
        return None
    return Table("Cells without a result", ["Cell", "Error"], rows, {})


def _origin(cell: Cell) -> tuple[str, ...]:
    origin = cell.result.get("provenance") or {}
    model = cell.result.get("model") or {}
    versions = ", ".join(
        f"{name} {value}" for name, value in (origin.get("versions") or {}).items()
    )
    return (
        _short_commit(str(origin.get("commit") or "unknown")),
        *(str(origin.get(name, "")) for name in ("device", "dtype")),
        versions,
        str(model.get("name", "")),
        str(model.get("digest", ""))[:_DIGEST_LENGTH],
    )


def _short_commit(commit: str) -> str:
    """Return the beginning of a commit, and the plus that says that files differed from it."""
    return commit[:12] + "+" * (commit.endswith("+") and len(commit) > 12)


def _settings_text(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name}={plain(value)}" for name, value in settings.items())


def plain(value: Any) -> str:
    """Return a setting as one would write it."""
    return value if isinstance(value, str) else json.dumps(value)


def _numbers(values: set[int]) -> str:
    return ", ".join(map(str, sorted(values)))
