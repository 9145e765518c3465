"""Groups of guard data on the command line: what decides, what is shown, what is warned of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import tiny
from tests.integration.commands import FAST, Files, Refused, Tfrnet, write_lines

LOOSE = [*FAST, "--set", "guard_examples=20", "--set", "guard_relative=100", "--no-audit"]


@pytest.fixture
def guard(files: Files, tmp_path: Path) -> Path:
    """Six lines near the requests, and three that are not."""
    close = [json.loads(line) for line in files.close_guard.read_text().splitlines()]
    other = [example.to_dict() for example in tiny.examples(3, offset=500)]
    lines = [*(line | {"group": "near"} for line in close), *(e | {"group": "far"} for e in other)]
    return write_lines(tmp_path / "groups.jsonl", lines)


def test_they_are_shown_with_every_request(
    tfrnet: Tfrnet, files: Files, tmp_path: Path, guard: Path
) -> None:
    options = [*files.opening(tmp_path / "new"), *LOOSE, "--guard", guard]
    applied = tfrnet("forget", "--request", files.request, *options)
    assert applied.code == 0
    assert "the guard has fewer than 4 examples of group 'far' (3): " in applied.err
    history = tfrnet("history", "--state", tmp_path / "new")
    entry = tfrnet("history", "--state", tmp_path / "new", "--json").json["entries"][-1]
    shown = {
        name: f"{name} {found['before']:.3f} -> {found['after']:.3f}"
        for name, found in entry["guard_groups"].items()
    }
    # What rose most comes first.
    rise = {name: found["after"] / found["before"] for name, found in entry["guard_groups"].items()}
    words = ", ".join(shown[name] for name in sorted(rise, key=rise.__getitem__, reverse=True))
    assert f"  guard by group: {words}\n" in applied.out
    assert f" (by group: {words})" in history.out


def test_a_rejected_request_says_which_group_broke_it(
    tfrnet: Tfrnet, files: Files, tmp_path: Path, guard: Path
) -> None:
    tight = ["--set", "guard_relative=0", "--set", "guard_absolute=0", "--set", "backtracks=0"]
    options = [*files.opening(tmp_path / "new"), *LOOSE, *tight, "--guard", guard, "--json"]
    record = tfrnet("forget", "--request", files.request, *options).json
    assert record["outcome"] == "rejected"
    over = {
        name: found["after"] / found["before"] for name, found in record["guard_groups"].items()
    }
    worst = max(over, key=over.__getitem__)
    assert record["reason"].startswith(f"guard loss in group '{worst}' would rise from ")


def test_a_group_that_is_no_name_is_refused(
    refused: Refused, tmp_path: Path, no_model: None
) -> None:
    path = write_lines(
        tmp_path / "bad.jsonl", [{"text": "Bees.", "group": "a"}, {"text": "x", "group": 4}]
    )
    assert refused("--guard", path) == f"{path}:2: group must be text, not a number"
