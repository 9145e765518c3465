"""The benchmark of the audit, on a tiny model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import audit


@pytest.mark.slow
def test_the_share_of_each_request_is_measured(tiny_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "audit.json"
    options = ["--model", str(tiny_folder), "--requests", "2", "--small-requests"]
    audit.main(["--json", str(file), *options])
    result = json.loads(file.read_text())
    assert [row["id"] for row in result["rows"]] == ["capitals-1", "capitals-2"]
    for row in result["rows"]:
        assert row["ratio"] == pytest.approx(row["audit"] / (row["total"] - row["audit"]))
    assert result["largest"] == max(row["ratio"] for row in result["rows"])
