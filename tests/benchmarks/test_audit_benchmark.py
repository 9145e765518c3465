"""The benchmark of the audit, on a tiny model, and what was measured with it on the default one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import audit
from benchmarks.audit_table import DOCUMENT, RESULT, audit_table
from tfrnet_bench.document import stale_tables


@pytest.mark.slow
def test_the_share_of_each_request_is_measured(tiny_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "audit.json"
    options = ["--model", str(tiny_folder), "--requests", "2", "--facts", "1"]
    audit.main(["--json", str(file), *options])
    result = json.loads(file.read_text())
    assert [row["id"] for row in result["rows"]] == ["capitals-1", "capitals-2"]
    for row in result["rows"]:
        assert row["ratio"] == pytest.approx(row["audit"] / (row["total"] - row["audit"]))
    assert result["largest"] == max(row["ratio"] for row in result["rows"])
    assert len(result["load"]) == 3
    assert len(audit_table(result).rows) == 2


def test_the_page_shows_what_was_measured() -> None:
    text = DOCUMENT.read_text()
    assert "<!-- table: audit -->" in text
    assert stale_tables(text, [audit_table(json.loads(RESULT.read_text()))]) == []


def test_the_audit_keeps_to_its_bound_but_where_the_page_says_so() -> None:
    result = json.loads(RESULT.read_text())
    assert result["bound"] == audit.BOUND
    assert {row["facts"] for row in result["rows"]} == {1, 8}
    over = [row for row in result["rows"] if row["ratio"] > result["bound"]]
    assert [(row["id"], row["facts"]) for row in over] == [("capitals-2", 1)]
    assert "The last one misses it" in DOCUMENT.read_text()


def test_a_bound_that_does_not_hold_says_so() -> None:
    row = {"id": "a", "facts": 1, "audit": 4.0, "total": 14.0, "ratio": 0.4}
    result = {"machine": "m", "model": "x", "load": [0.0, 2.0], "bound": 0.3, "rows": [row]}
    assert "(missed)" in audit_table(result).rows[0][3]
