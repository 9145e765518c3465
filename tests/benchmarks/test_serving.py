"""The table of the service's speed is that of the file that was measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import serving
from benchmarks.serving_table import DOCUMENT, RESULT, ROWS, serving_table
from tests import tiny
from tests.serve.running import make_session
from tfrnet.models.load import LoadedModel
from tfrnet.models.twin import twin_of
from tfrnet_bench.document import stale_tables

FACTS = {"machine": "m", "model": "x", "tokens": 32, "rounds": 7, "queued": 1000}


def test_the_page_shows_what_was_measured() -> None:
    text = DOCUMENT.read_text()
    assert "<!-- table: serving -->" in text
    assert stale_tables(text, [serving_table(json.loads(RESULT.read_text()))]) == []


def test_a_target_that_does_not_hold_says_so() -> None:
    def marks(value: float) -> list[bool]:
        table = serving_table(FACTS | {"figures": dict.fromkeys([r.figure for r in ROWS], value)})
        return ["(missed)" in str(row[2]) for row in table.rows]

    assert marks(1e6) == [row.most is not None for row in ROWS]
    assert marks(0) == [row.least is not None for row in ROWS]


@pytest.mark.slow
def test_everything_that_the_table_shows_is_measured(tmp_path: Path, tokenizer) -> None:
    """On a small model; the figures mean nothing here."""
    session = make_session(tmp_path / "state", tokenizer)
    plain = LoadedModel(twin_of(tiny.make_trained_model()), tokenizer)
    service = serving.Service(session, tmp_path)
    try:
        found = serving.rounds_of(plain, service, 1)
        shares = serving.kept_beside(service, tiny.requests(2, size=2), 0.2)
        queue = serving.submissions(service, tiny.requests(3, size=2)[2], 20)
    finally:
        service.stop()
    assert all(len(values) == 1 and values[0] > 0 for values in found.values())
    assert len(shares) == 2
    figures = serving.figures_of(found, shares) | queue
    assert {row.figure for row in ROWS} <= set(figures)
    rate = figures["tokens a second, service, 1"] / figures["tokens a second, generate, 1"]
    assert figures["service / generate, 1"] == pytest.approx(rate)
    first = 1000 * (found["first token, service"][0] - found["first token, generate"][0])
    assert figures["first token, milliseconds over generate"] == pytest.approx(first)
