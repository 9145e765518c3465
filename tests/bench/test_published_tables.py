"""The published results as their page in the notebook tells them."""

from __future__ import annotations

import csv
from statistics import fmean

import pytest

from benchmarks.published_tables import (
    DOCUMENT,
    ROOT,
    SEEDS,
    STREAMS,
    ideal_score,
    keeping,
    not_yet_requested,
    published_tables,
    read_cell,
    requested_forgetting,
    requested_trade_off,
)
from tfrnet.evaluation.metrics.intervals import t_interval
from tfrnet_bench.document import stale_tables

RESULT = {
    "protocol": {"request_size": 1},
    "floors": {"forget": {"random": 50.0}},
    "forgetting": {
        "accuracy": {"before": [100.0, 100.0]},
        "seen": [75.0, 0.0],
        "unseen": [80.0],
    },
    "items": {"fixed": "11", "correct": ["11"]},
    "checkpoints": [
        {"request": 0, "retain": {"a": 80.0, "b": 80.0}},
        {"request": 1, "retain": {"a": 40.0, "b": 80.0}},
        {"request": 2, "retain": {"a": 40.0, "b": 40.0}},
    ],
}


def test_the_page_shows_the_results():
    tables, text = published_tables(), DOCUMENT.read_text()
    assert [table.name for table in tables if f"<!-- table: {table.name} -->" not in text] == []
    assert stale_tables(text, tables) == []


def test_the_mean_trade_offs_are_those_of_the_main_table():
    (scores,) = (table for table in published_tables() if table.name == "scores")
    with (ROOT / "benchmarks/results/paper/tables/main.csv").open() as file:
        means = {row["Method"]: row["Mean Trade"] for row in csv.DictReader(file)}
    told = {row[0]: float(row[-1].split()[0]) for row in scores.rows if row[0] in means}
    assert len(told) >= 10
    for name, mean in told.items():
        assert mean == pytest.approx(float(means[name].split()[0]), abs=0.051)


def test_only_requested_items_count_and_nothing_below_chance():
    assert requested_forgetting(RESULT) == pytest.approx(75.0)  # of 50, then of all
    assert keeping(RESULT) == pytest.approx(62.5)
    assert requested_trade_off(RESULT) == pytest.approx(2 * 75 * 62.5 / 137.5)
    assert not_yet_requested(RESULT) == 80.0


def test_nothing_forgotten_scores_nothing():
    untouched = RESULT | {"forgetting": RESULT["forgetting"] | {"seen": [100.0, 100.0]}}
    assert requested_trade_off(untouched) == 0.0


def test_the_ideal_changes_requested_items_alone():
    # F of 50 and 0, then of 75 and 50, at an untouched R of 80.
    assert ideal_score(RESULT, 0.0) == pytest.approx(2 * 75 * 80 / 155)
    assert ideal_score(RESULT, 50.0) == pytest.approx(2 * 37.5 * 80 / 117.5)


def test_the_lead_is_as_told():
    def by_seed(cell):
        return [
            fmean(requested_trade_off(read_cell(cell, stream, seed)) for stream in STREAMS)
            for seed in SEEDS
        ]

    lead = [own - other for own, other in zip(by_seed("tfr"), by_seed("simnpo"), strict=True)]
    mean, interval = t_interval(lead)
    told = f"{mean:.2f} ± {interval.high - mean:.2f} above SimNPO when compared seed by seed"
    assert told in " ".join(DOCUMENT.read_text().split())


def test_guard_and_losses_are_as_told():
    guard, retain, deepest = [], [], 0.0
    for stream in STREAMS:
        for seed in SEEDS:
            requests = read_cell("tfr", stream, seed)["requests"]
            guard.append(requests[-1]["guard_loss_after"] / requests[0]["guard_loss_before"])
            losses = [request["retain_loss_before"] for request in requests]
            retain.append(sum(losses[-5:]) / sum(losses[:5]))
            deepest = max(deepest, *(request["forget_loss_after"] for request in requests))
    text = " ".join(DOCUMENT.read_text().split())
    assert f"guard loss ends at {min(guard):.1f} to {max(guard):.1f} times its first value" in text
    assert f"is {min(retain):.1f} to {max(retain):.1f} times that of the first" in text
    assert f"up to {deepest:.0f} nats" in text
