"""The page about what comes back holds what its cells say."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from statistics import fmean

from benchmarks import drift_table as tables
from benchmarks.default_table import STREAMS, mean, of, read_cells
from benchmarks.limits_table import came_back
from benchmarks.repair_table import cells
from tfrnet_bench.constants import FIRST_TUNING_SEED

NOTEBOOK = Path(__file__).parents[2] / "benchmarks" / "notebook"
PAGE = (NOTEBOOK / "drift.md").read_text()
WORDS = " ".join(PAGE.split())
VARIANTS = {(stream, name): own for stream, name, own in tables.variants()}


def test_the_tables_are_those_of_the_cells() -> None:
    assert tables.streams_table() in PAGE
    assert tables.back_table() in PAGE
    assert tables.halves_table() in PAGE
    assert tables.long_table() in PAGE


def test_both_variants_are_whole_streams_of_the_same_seeds() -> None:
    for own in VARIANTS.values():
        assert [row["seed"] for row in own] == [3, 4, 5]
        assert all(row["accepted"] == row["requests"] == 20 for row in own)
    settings = [row["settings"] for row in read_cells("drift")]
    assert settings == [{"memory_fall": 0.1}] * 9


def test_the_summary_is_what_was_measured() -> None:
    summary = " ".join(PAGE.split("\n\n")[1].split())
    back, scores = {}, {}
    for name in ("m10", "d"):
        rows = [VARIANTS[stream, name] for stream in STREAMS]
        back[name] = [fmean(map(came_back, own)) for own in rows]
        scores[name] = fmean(float(mean(own, "honest", "")) for own in rows)
    shown = "{:.0f}, {:.0f} and {:.0f} points come back in place of {:.0f}, {:.0f} and {:.0f}"
    assert shown.format(*back["m10"], *back["d"]) in summary
    assert f"is {scores['m10']:.1f} in place of {scores['d']:.1f}" in summary


def test_with_a_fall_every_stream_is_farther_from_a_retrained_model() -> None:
    oracles = {(row["task"], row["seed"]): row for row in read_cells("default-oracle")}
    for stream in STREAMS:
        held, lowered = (
            fmean(
                tables.distance(row["checkpoints"][-1], oracles[stream, row["seed"]])
                for row in VARIANTS[stream, name]
            )
            for name in ("d", "m10")
        )
        assert lowered > held


def test_a_long_stream_is_of_a_tuning_seed_and_all_accepted() -> None:
    rows = read_cells("long-stream")
    assert sorted(row["memory_fall"] for row in rows) == [0, 0.1]
    assert all(row["seed"] >= FIRST_TUNING_SEED for row in rows)
    assert all(row["accepted"] == row["checkpoints"][-1]["request"] == 50 for row in rows)


def test_the_drift_on_openbookqa_is_what_was_measured() -> None:
    losses = []
    for row in of(read_cells("wrong-answers"), "median", "openbookqa"):
        found = {each["request"]: each["losses"][:5] for each in row["checkpoints"]}
        losses.append([fmean(chain(*found[request])) for request in (5, 20)])
    before, after = (fmean(column) for column in zip(*losses, strict=True))
    fallen = sorted(first - last for first, last in losses)
    shown = WORDS
    assert len(losses) == 7
    assert f"{before:.1f} nats after the fifth request and of {after:.1f} after" in shown
    assert f"by {fallen[0]:.1f} to {fallen[-1]:.1f} nats" in shown


def test_what_a_fall_of_remembered_answers_costs_is_what_was_measured() -> None:
    ((held,), (lowered,)) = (of(cells(), name, "demo:capitals") for name in ("d0", "m20"))
    pairs = zip(held["forget_loss_end"][:-1], lowered["forget_loss_end"][:-1], strict=True)
    deeper = sorted(after - before for before, after in pairs)
    assert f"{deeper[0]:.1f} to {deeper[-1]:.1f} nats deeper" in WORDS
    for name in ("same_topic", "others"):
        assert held["points"][-1][name] == lowered["points"][-1][name]
    # Nothing drifts back: at the end each is at least as deep as right after its request.
    pairs = zip(held["forget_loss_after"], held["forget_loss_end"], strict=True)
    assert all(after > before - 0.05 for before, after in pairs)
