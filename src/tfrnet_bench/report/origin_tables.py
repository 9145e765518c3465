"""Tables of where the numbers come from: versions, commits, devices, inputs, settings."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from tfrnet_bench.report.values import number
from tfrnet_bench.results import CellResult, Part, Run
from tfrnet_bench.tables.table import Table

# Enough of a digest to tell one from another.
DIGEST_LENGTH = 16


def origin_table(run: Run) -> Table:
    """Return the distinct origins of the cells, each with the number of its cells."""
    counts = Counter(map(_origin, run.results))
    return Table(
        "origin",
        "Origin of the cells",
        ["Commit", "Device", "Dtype", "Versions", "Model", "Model digest", "Cells"],
        [[*origin, number(count, 0)] for origin, count in counts.most_common()],
        text_columns=6,
    )


def input_table(run: Run) -> Table:
    """Return the sizes of the protocol, and the digests of what the cells were given."""
    groups: dict[tuple[str, str, str], list[CellResult]] = defaultdict(list)
    for result in run.results:
        groups[result.kind, result.stream, _settings_text(result.protocol)].append(result)
    columns = ["Kind", "Stream", "Seeds", "Inputs digest", "Protocol"]
    rows = [
        [
            *(kind, stream),
            ", ".join(map(str, sorted({result.seed for result in results}))),
            _digests(results),
            protocol,
        ]
        for (kind, stream, protocol), results in sorted(groups.items())
    ]
    return Table("inputs", "Inputs", columns, rows, text_columns=len(columns))


def plan_facts(run: Run) -> dict[str, str]:
    """Return what a run was asked for, in words: its plans, one after another."""
    return {
        f"Plan {number}": _settings_text(plan) for number, plan in enumerate(run.plans, start=1)
    }


def settings_table(run: Run) -> Table:
    """Return the settings of each variant; one that had several has several rows.

    Of a variant only what differs from its method is shown, so that one sees what it varies.
    """
    methods = {(result.kind, result.variant): result.settings for result in run.results}
    kinds: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for result in run.results:
        is_method = result.variant == result.method
        base = None if is_method else methods.get((result.kind, result.method))
        settings = _against(result.method, base, result.settings)
        overrides = ", ".join(result.overrides)
        key = result.variant, result.method, result.preset, overrides, settings
        kinds[key].add(result.kind)
    columns = ["Variant", "Kinds", "Method", "Preset", "Overrides", "Settings"]
    rows = [[key[0], ", ".join(sorted(found)), *key[1:]] for key, found in sorted(kinds.items())]
    return Table("settings", "Settings", columns, rows, text_columns=len(columns))


def failure_table(run: Run) -> Table | None:
    """Return the cells without a result and why; None if there are none."""
    rows = [[str(failure.key), failure.error] for failure in run.failures]
    rows += [[str(key), "neither a result nor an error yet"] for key in run.unfinished]
    if not rows:
        return None
    return Table("failures", "Cells without a result", ["Cell", "Error"], rows, text_columns=2)


def _origin(result: CellResult) -> tuple[str, ...]:
    origin, model = result.provenance, result.model
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


def _against(method: str, base: Part | None, settings: Part) -> str:
    """Return settings in words: all of them, or what differs from those of the method."""
    if base is None or base.keys() != settings.keys():
        return _settings_text(settings)
    changed = {name: value for name, value in settings.items() if value != base[name]}
    return f"as {method}" + (f", but {_settings_text(changed)}" if changed else "")


def _settings_text(settings: Part) -> str:
    return ", ".join(f"{name}={plain(value)}" for name, value in settings.items())


def plain(value: Any) -> str:
    """Return a setting as one would write it."""
    return value if isinstance(value, str) else json.dumps(value)


def _digests(results: Sequence[CellResult]) -> str:
    found = {result.inputs[:DIGEST_LENGTH] for result in results}
    return found.pop() if len(found) == 1 else f"{len(found)} different, each shown with its cell"
