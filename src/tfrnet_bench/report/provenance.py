"""Where the numbers come from: versions, commits, devices, inputs, settings."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from tfrnet_bench.report.bench_run import BenchRun, Cell
from tfrnet_bench.report.table import Row, Table, number, text

# Enough of a digest to tell one from another.
DIGEST_LENGTH = 16


def origin_table(run: BenchRun) -> Table:
    """Return the distinct origins of the cells, each with the number of its cells."""
    counts = Counter(_origin(cell) for cell in run.cells)
    rows = [Row([*map(text, origin), number(count, 0)]) for origin, count in counts.most_common()]
    columns = ["Commit", "Device", "Dtype", "Versions", "Model", "Model digest", "Cells"]
    return Table("Origin of the cells", columns, rows, {})


def input_table(run: BenchRun) -> Table:
    """Return the sizes of the protocol, and the digests of what the cells were given."""
    groups: dict[tuple[str, str, str], list[Cell]] = defaultdict(list)
    for cell in run.cells:
        protocol = _settings_text(cell.result.get("protocol") or {})
        groups[cell.kind, cell.stream, protocol].append(cell)
    rows = [
        Row(
            [
                *(text(kind), text(stream)),
                text(", ".join(map(str, sorted({cell.seed for cell in cells})))),
                text(_digests(cells)),
                text(protocol),
            ]
        )
        for (kind, stream, protocol), cells in sorted(groups.items())
    ]
    columns = ["Kind", "Stream", "Seeds", "Inputs digest", "Protocol"]
    return Table("Inputs", columns, rows, {})


def bench_facts(bench: dict[str, Any]) -> dict[str, str]:
    """Return what a run was asked for, in words: its plans, one after another."""
    return {
        f"Plan {number}": _settings_text(plan)
        for number, plan in enumerate(bench.get("plans", ()), start=1)
    }


def settings_table(run: BenchRun) -> Table:
    """Return the settings of each variant; one that had several has several rows.

    Of a variant only what differs from its method is shown, so that one sees what it varies.
    """
    methods = {(c.kind, c.variant): c.result.get("settings") or {} for c in run.cells}
    kinds: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for cell in run.cells:
        overrides = ", ".join(cell.result.get("overrides") or ())
        base = methods.get((cell.kind, cell.method)) if cell.variant != cell.method else None
        settings = _against(cell.method, base, cell.result.get("settings") or {})
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
        str(model.get("digest", ""))[:DIGEST_LENGTH],
    )


def _short_commit(commit: str) -> str:
    """Return the beginning of a commit, and the plus that says that files differed from it."""
    return commit[:12] + "+" * (commit.endswith("+") and len(commit) > 12)


def _against(method: str, base: dict[str, Any] | None, settings: dict[str, Any]) -> str:
    """Return settings in words: all of them, or what differs from those of the method."""
    if base is None or base.keys() != settings.keys():
        return _settings_text(settings)
    changed = {name: value for name, value in settings.items() if value != base[name]}
    return f"as {method}" + (f", but {_settings_text(changed)}" if changed else "")


def _settings_text(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name}={plain(value)}" for name, value in settings.items())


def plain(value: Any) -> str:
    """Return a setting as one would write it."""
    return value if isinstance(value, str) else json.dumps(value)


def _digests(cells: Sequence[Cell]) -> str:
    found = {str(cell.result.get("inputs", ""))[:DIGEST_LENGTH] for cell in cells}
    return found.pop() if len(found) == 1 else f"{len(found)} different, each shown with its cell"
