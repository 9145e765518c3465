"""The page about passages holds what its lines say."""

from __future__ import annotations

import json
import re

import pytest

from benchmarks.passages import KEPT, KNOWN, PASSAGES, UNKNOWN
from benchmarks.passages_table import CONTEXTS, LINES, PAGE, mean_of, passage_tables, rows_of
from tfrnet_bench.document import stale_tables

TEXT = " ".join(PAGE.read_text().split())
METHODS = ("default", "before", "deep", "simnpo", "npo")
ALL = [json.loads(line) for line in LINES.read_text().splitlines()]


def test_the_page_shows_its_tables():
    tables = passage_tables()
    assert [t.name for t in tables if f"<!-- table: {t.name} -->" not in PAGE.read_text()] == []
    assert stale_tables(PAGE.read_text(), tables) == []


def test_every_method_ran_on_the_same_passages_of_three_seeds():
    draws = {row["seed"]: row["sets"] for row in rows_of("default")}
    assert list(draws) == [3, 4, 5]
    for method in METHODS:
        assert [row["sets"] for row in rows_of(method)] == list(draws.values())
    for method in ("default", "before"):
        assert [row["sets"] for row in rows_of(method, facts_only=True)] == list(draws.values())
    assert len(ALL) == 3 * (len(METHODS) + 2)


def test_sets_do_not_overlap_and_are_what_they_are_called():
    names = [json.loads(line)["id"] for line in PASSAGES.read_text().splitlines()]
    assert f"{len(names)} passages" in TEXT
    for row in ALL:
        drawn = [name for own in row["sets"].values() for name in own]
        assert len(drawn) == len(set(drawn))
        assert set(drawn) <= set(names)
        assert len(row["sets"]["kept"]) == KEPT
        for kind, own in row["sets"].items():
            for name in own:
                losses = row["before"][name]["losses"]
                mean = sum(losses) / len(losses)
                assert mean > UNKNOWN if kind == "unknown" else mean < KNOWN
    known = len(drawn) - len(row["sets"]["unknown"])
    assert f"{known} of them the model knows" in TEXT
    assert f"{len(row['sets']['unknown'])} famous passages" in TEXT


def test_the_summary_is_that_of_the_lines():
    given, facts = rows_of("default"), rows_of("default", facts_only=True)
    before = rows_of("before", facts_only=True)
    ends = [mean_of(rows, "after", "losses", "forgotten") for rows in (given, facts)]
    start = mean_of(given, "before", "losses", "forgotten")
    assert f"from {start:.1f} to {ends[0]:.1f} nats a token" in TEXT
    fresh = [mean_of(given, when, "losses", "fresh") for when in ("before", "after")]
    assert f"nobody named go from {fresh[0]:.1f} to {fresh[1]:.1f}" in TEXT
    unknown = mean_of(given, "before", "losses", "unknown")
    assert f"unknown ones have {unknown:.1f}" in TEXT
    assert f"went to {mean_of(before, 'after', 'losses', 'forgotten'):.1f} nats" in TEXT
    assert all(abs(end - unknown) < 1 for end in ends)


def test_what_is_said_of_other_methods_holds():
    (deep, others) = map(
        int, re.search(r"end at (\d+) to (\d+) nats, and other passages", TEXT).groups()
    )
    ends = [mean_of(rows_of(m), "after", "losses", "forgotten") for m in ("deep", "simnpo", "npo")]
    assert (round(min(ends)), round(max(ends))) == (deep, others)
    fresh = [mean_of(rows_of(m), "after", "losses", "fresh") for m in ("deep", "simnpo", "npo")]
    (low, high) = map(int, re.search(r"other passages at (\d) to (\d)\.", TEXT).groups())
    assert (round(min(fresh)), round(max(fresh))) == (low, high)


def test_before_nothing_was_forgotten_where_passages_were_kept():
    rows = rows_of("before")
    assert sum(row["accepted"] for row in rows) == 12
    start, end = (mean_of(rows, when, "losses", "forgotten") for when in ("before", "after"))
    assert end == pytest.approx(start, abs=0.6)


def test_what_is_by_heart_of_unknown_text_is_told():
    found = json.loads(CONTEXTS.read_text())
    assert f"changes {100 * found['unknown']['by_heart']:.0f} % of its tokens" in TEXT
    everyday = found["everyday"]
    assert f"below {everyday['whole'] / everyday['in_view']:.2f} times its loss" in TEXT
