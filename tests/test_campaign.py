"""Each campaign of tests/campaign at a small count: nothing goes wrong, and it can tell."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.campaign import attacks, calls, flips, inputs, kills, mutations, power, readers
from tests.campaign.table import DOCUMENT, RESULTS, campaign_table
from tfrnet.core.errors import InputError
from tfrnet_bench.document import stale_tables

needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
SEED = 7


def assert_nothing_wrong(result, least: int) -> None:
    assert result.wrong == []
    assert result.tried >= least


def test_mutated_inputs(tmp_path: Path) -> None:
    result = inputs.run(150, SEED, tmp_path)
    assert_nothing_wrong(result, 140)
    assert {"requests", "retain", "guard", "options", "manifests", "ledgers"} <= set(result.counts)
    assert {"generations", "backups", "safetensors headers", "GGUF structure"} <= set(result.counts)


def test_flipped_bytes(tmp_path: Path) -> None:
    result = flips.run(60, SEED, tmp_path)
    assert_nothing_wrong(result, 60)
    assert {"signed: jsonl", "unsigned: jsonl"} <= set(result.counts)


def test_random_attacks(tmp_path: Path) -> None:
    assert_nothing_wrong(attacks.run(10, SEED, tmp_path), 10)


@pytest.mark.slow
def test_readers_beside_a_writer(tmp_path: Path) -> None:
    result = readers.run(2, SEED, tmp_path)
    assert_nothing_wrong(result, 10)
    assert result.counts["commits beside them"] > 1


@pytest.mark.slow
@needs_strace
def test_failing_system_calls() -> None:
    """In a process of its own: it forks, and threads that other tests have started survive none."""
    asked = [sys.executable, "-m", "tests.campaign", "calls", "--quick", "--seed", str(SEED)]
    finished = subprocess.run(asked, capture_output=True, text=True, cwd=DOCUMENT.parents[1])
    assert re.search(r"^calls: \d\d attempts, 0 wrong", finished.stdout), finished
    assert finished.returncode == 0


def test_every_work_is_struck_by_the_campaign() -> None:
    struck = [name for half in calls.HALVES for name in half]
    assert sorted(struck) == sorted(work.name for work in calls.WORKS)
    assert {"key rotation", "export", "certificate"} <= set(struck)


@pytest.mark.parametrize("names", [("options",), ("safetensors headers", "GGUF structure")])
def test_options_and_models_go_through_the_real_command_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    monkeypatch.setattr(inputs, "_BY_COMMAND", 100)
    result = inputs.run(20, SEED, tmp_path, names)
    assert_nothing_wrong(result, 18)
    assert set(result.counts) == {f"{name}, read by the command" for name in names}


def test_the_default_is_among_what_is_killed() -> None:
    """Its settings but for those that make it quick, and one without which it rejects."""
    words = kills.SETUPS["default"]
    assert "--preset" not in words
    assert "--method" not in words


@pytest.mark.slow
def test_power_cuts(tmp_path: Path) -> None:
    assert_nothing_wrong(power.run(2, SEED, tmp_path), 300)


@pytest.mark.slow
@pytest.mark.parametrize("setup", kills.SETUPS)
def test_kills(tmp_path: Path, setup: str) -> None:
    assert_nothing_wrong(kills.run(10, SEED, tmp_path, (setup,)), 10)


# They can tell


def test_a_reader_that_fails_otherwise_than_in_one_line_is_reported() -> None:
    def refuse() -> None:
        raise InputError("no")

    def crash() -> None:
        raise IndexError("list index out of range")

    assert inputs._problem(refuse) == ""
    assert inputs._problem(crash) == "IndexError: list index out of range"


@pytest.mark.parametrize(
    ("said", "is_wrong"),
    [
        ("tfrnet: error: unexpected KeyError: 'x'", True),
        ("tfrnet: error: one line\nanother", True),
        ("Traceback (most recent call last):", True),
        ("tfrnet: error: model m cannot be loaded: unexpected end of hex escape", False),
    ],
)
def test_a_command_that_fails_otherwise_than_in_one_line_is_reported(
    monkeypatch: pytest.MonkeyPatch, said: str, is_wrong: bool
) -> None:
    def failing() -> None:
        print(said, file=sys.stderr)
        raise SystemExit(2)

    monkeypatch.setattr(inputs, "main", failing)
    assert bool(inputs._problem_of_command(("run",))) is is_wrong


def test_a_hang_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "_SECONDS", 1)

    def hang() -> None:
        while True:
            pass

    assert "no answer after 1 s" in inputs._problem(hang)


def test_a_flip_that_verify_does_not_find_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flips, "verify_state", lambda folder: [])
    assert len(flips.run(3, SEED, tmp_path).wrong) == 3


@needs_strace
def test_a_commit_that_swallows_errors_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def careless(folder: Path) -> None:
        try:
            real(folder)
        except Exception:
            return

    (commit,) = (work for work in calls.WORKS if work.name == "commit")
    real = commit.do
    result = calls.Result("calls", "", SEED)
    bad = calls.Work("careless", commit.prepare, careless, commit.problem)
    calls._strike(bad, tmp_path, "inject=fsync:error=EIO:when=1", "error=EIO", result)
    assert len(result.wrong) == 1
    assert "it said it was done, and it is not" in result.wrong[0]


def test_mutations_are_drawn_by_the_seed() -> None:
    import random

    data = b'{"id": "a", "examples": [{"text": "x"}]}\n' * 3
    drawn = [
        [mutations.mutated_json_lines(data, random.Random(seed)) for seed in range(50)]
        for _ in range(2)
    ]
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) > 40


# What is written about them


def test_the_table_of_the_page_is_that_of_the_last_campaign() -> None:
    table = campaign_table(json.loads(RESULTS.read_text()))
    assert stale_tables(DOCUMENT.read_text(), [table]) == []
    assert [row[-1] for row in table.rows] == ["0"] * 7
