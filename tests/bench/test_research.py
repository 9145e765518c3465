"""The research log holds what the committed runs say."""

import json
import re
from pathlib import Path

import pytest

from benchmarks.research_table import research_table
from tfrnet.evaluation.metrics.continual import trade_off
from tfrnet_bench.constants import FIRST_TUNING_SEED
from tfrnet_bench.search.rows import read_rows

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "benchmarks" / "results" / "research"
# These have pages of their own, by test_attacks_page.py, test_calibrated.py, test_cost.py,
# test_default.py, test_drift.py, test_limits.py, test_main_table.py, test_neighbours.py,
# test_paper_rule.py, test_private.py, test_repair.py, test_witness.py and test_wrong_answers.py.
OWN_PAGE = {
    "attacks.jsonl",
    "calibrated.jsonl",
    "calibrated-leads.jsonl",
    "calibrated-neighbours.jsonl",
    "calibrated-report.jsonl",
    "cost.jsonl",
    "default-oracle.jsonl",
    "default-report.jsonl",
    "drift.jsonl",
    "gemma.jsonl",
    "later-seeds.jsonl",
    "limits.jsonl",
    "long-numbers.jsonl",
    "long-stream.jsonl",
    "neighbours.jsonl",
    "own-symbols.jsonl",
    "paper-map.jsonl",
    "private.jsonl",
    "private-tuning.jsonl",
    "repair.jsonl",
    "tofu-chat-01.jsonl",
    "tofu-chat.jsonl",
    "tofu-chat-tuning.jsonl",
    "tuned-rivals.jsonl",
    "witness.jsonl",
    "wrong-answers.jsonl",
}
LOG = (ROOT / "benchmarks" / "notebook" / "research.md").read_text()


@pytest.mark.parametrize(
    "name", sorted(path.name for path in RUNS.glob("*.jsonl") if path.name not in OWN_PAGE)
)
def test_tables_are_those_of_the_runs(name):
    rows = read_rows(RUNS / name)
    assert research_table(rows) in LOG
    assert f"`{name}`" in LOG
    assert min(row["seed"] for row in rows) >= FIRST_TUNING_SEED


def test_interference_is_what_was_measured():
    result = json.loads((RUNS / "interference-arithmetic.json").read_text())
    assert result["seed"] >= FIRST_TUNING_SEED
    for move in result["moves"]:
        spread = move["others"]["next request"]
        shown = f"{spread['mean']:+.2f} ± {spread['deviation']:.2f}"
        assert f"| {move['retain_rows']} | {move['damping']:g} |" in LOG
        assert shown in LOG


def test_the_run_with_the_whole_pool_is_what_was_measured():
    result = json.loads((RUNS / "pool-whole.json").read_text())
    assert result["seed"] >= FIRST_TUNING_SEED
    for number, request in enumerate(result["requests"], 1):
        losses = "guard_loss_before", "guard_loss_after"
        guard = " | ".join(f"{request[name]:.4f}" for name in losses)
        right = ", ".join(map(str, request["right_percent_by_request"]))
        assert f"| {number} | {guard} | {request['forget_loss_after']:.2f} | {right} |" in LOG
        assert request["guard_loss_after"] <= 1.05 * request["guard_loss_before"] + 1e-4
    after_five = result["requests"][4]
    right = after_five["right_percent_by_request"]
    drift = after_five["guard_loss_after"] / result["requests"][0]["guard_loss_before"]
    assert f"{sum(right) / 5:.0f} % right after five requests" in LOG
    assert f"guard loss {drift:.2f} times" in LOG
    assert f"held-out arithmetic at {result['held_out_after_5']:.0f} %" in LOG


def test_what_uses_up_the_guard_is_what_was_measured():
    result = json.loads((RUNS / "guard-share.json").read_text())
    assert result["seed"] >= FIRST_TUNING_SEED
    rises = [rise for three in result["foreseen_rise_nats"].values() for rise in three]
    assert f"{min(rises):.2f} to +{max(rises):.2f} nats" in LOG
    for loss in result["mean_guard_loss"].values():
        assert f"{loss:.4f}" in LOG
    before, after = result["measured_for_request_1"]["lowered by 10"]["openbookqa"]
    assert f"from {before} to {after}" in LOG


def test_the_means_of_the_held_guard_are_those_of_the_runs():
    rows = read_rows(RUNS / "held-guard.jsonl")
    for name in ("B", "B-nohold", "B-nomem"):
        found = [row["trade_off"] for row in rows if row["candidate"] == name]
        assert len(found) == 3
        assert f"{sum(found) / 3:.1f}" in LOG
    by_search = []
    for row in (row for row in rows if row["candidate"] == "B"):
        first = row["checkpoints"][1]
        kept = sum(first["heldout"].values()) / len(first["heldout"])
        by_search.append(trade_off(sum(first["by_request"][:5]) / 5, kept))
        assert f"{by_search[-1]:.1f}" in LOG
    assert f"`B` has {sum(by_search) / 3:.1f}" in LOG
    assert all(row["settings"]["guard_relative"] <= 0.05 for row in rows)
    assert all(row["drift"] < 1.05**20 for row in rows)


@pytest.mark.parametrize("name", ["steered-guard.jsonl", "deep-rivals.jsonl"])
def test_the_means_of_the_steered_guard_are_those_of_the_runs(name):
    rows = read_rows(RUNS / name)
    found = [row for row in rows if row["candidate"] == "base"]
    assert len(found) == 3
    mean = sum(row["trade_off"] for row in found) / 3
    assert f"Mean Trade-off {mean:.1f} against" in LOG or f"of `base`: {mean:.1f}," in LOG
    assert all(row["accepted"] == 20 for row in found)
    assert all(row["settings"]["guard_relative"] <= 0.05 for row in rows)
    assert all(row["drift"] < 1.05**20 for row in rows)


def test_the_demo_is_what_was_measured():
    result = json.loads((RUNS / "demo-solve.json").read_text())
    after, outcomes = result["accuracy_after"], result["outcomes"]
    assert f"of 40 facts {after['forgotten']:.1f} % are right afterwards" in LOG
    assert f"{after['same_topic']:.1f} %, of other topics {after['others']:.1f} %" in LOG
    first, last = outcomes[0]["guard_loss_before"], outcomes[-1]["guard_loss_after"]
    assert f"rises from {first:.3f} to {last:.3f}" in LOG
    seconds = [outcome["seconds"]["total"] for outcome in outcomes]
    assert f"{min(seconds):.0f} to {max(seconds):.0f} s on two cores" in LOG


def test_the_demo_with_other_steps_is_what_was_measured():
    (told,) = [line for line in LOG.splitlines() if "`demo-steps.json`" in line]
    numbers = re.findall(r"\d+\.\d", told)
    for run in json.loads((RUNS / "demo-steps.json").read_text())["runs"]:
        after = [f"{run['accuracy_after'][of]:.1f}" for of in ("forgotten", "same_topic", "others")]
        assert after in [numbers[i : i + 3] for i in range(len(numbers))]


def test_the_fault_of_the_solver_is_what_was_measured():
    result = json.loads((RUNS / "solver-steps.json").read_text())
    assert result["seed"] >= FIRST_TUNING_SEED
    before, after = (run["steps"] for run in result["runs"])
    assert (
        "the first went where it should, the second a quarter of its way, and four nowhere" in LOG
    )
    missed = [step["missed"] / step["asked"] for step in before]
    assert missed[0] < 1e-4 and missed[1] == pytest.approx(0.75, abs=0.01)
    assert [step["moved"] for step in before[2:]] == [0.0] * 4
    assert "four Newton steps for each of the same six problems" in LOG
    assert [step["newton_steps"] for step in after] == [4] * 6
    assert max(step["missed"] / step["asked"] for step in after) <= 1e-6
    low = min(step["least_eigenvalue_float32"] for step in before)
    assert f"least of them comes out at {low:.0f}," in LOG


def test_the_guard_held_in_every_run():
    for name in ("solved-steps.jsonl", "rivals.jsonl"):
        for row in read_rows(RUNS / name):
            assert row["settings"].get("guard_relative", 0.05) <= 0.05
            assert row["accepted"] == 20
            assert row["drift"] < 1.05**20


def test_the_cost_beside_gradient_difference_is_what_was_measured():
    peer, own = json.loads((RUNS / "cost-cpu.json").read_text())["rows"]
    assert (peer["method"], peer["settings"]["steps"], own["method"]) == ("graddiff", 5, "tfr")
    assert f"{own['seconds']:.1f} s against {peer['seconds']:.1f}" in LOG
    assert f"{own['seconds_by_stage']['total']:.1f} s with them" in LOG
    assert f"{own['seconds'] / peer['seconds']:.2f} times it without the guard" in LOG
