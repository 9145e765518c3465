"""The table of the service's speed is that of the file that was measured."""

from __future__ import annotations

import json

from benchmarks.serving_table import DOCUMENT, RESULT, ROWS, serving_table
from tfrnet_bench.document import stale_tables

FACTS = {"machine": "m", "model": "x", "tokens": 32, "rounds": 7, "queued": 1000}


def test_the_page_shows_what_was_measured() -> None:
    text = DOCUMENT.read_text()
    if RESULT.exists():
        assert "<!-- table: serving -->" in text
        assert stale_tables(text, [serving_table(json.loads(RESULT.read_text()))]) == []
    else:
        assert "not measured yet" in text


def test_a_target_that_does_not_hold_says_so() -> None:
    def marks(value: float) -> list[bool]:
        table = serving_table(FACTS | {"figures": dict.fromkeys([r.figure for r in ROWS], value)})
        return ["(missed)" in str(row[2]) for row in table.rows]

    assert marks(1e6) == [row.most is not None for row in ROWS]
    assert marks(0) == [row.least is not None for row in ROWS]
