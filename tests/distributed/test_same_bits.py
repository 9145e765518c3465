"""Several real processes share one run: the same bits as one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests import tiny
from tests.distributed.launcher import REQUESTS, Launcher
from tests.states import story, tensors
from tfrnet.method_state import verify_state
from tfrnet.state.store import StateStore

_COUNT_PASSES = """
import tfrnet.methods.tfr.scoring as scoring
real = scoring.collate
def collate(*arguments):
    with open({folder!r} + f"/passes{{rank}}", "a") as file:
        file.write("x")
    return real(*arguments)
scoring.collate = collate
"""


@pytest.mark.parametrize(
    "settings",
    [
        *("deep", "paper", "fisher", "calibrated"),
        pytest.param("default", marks=pytest.mark.slow),
    ],
)
def test_any_number_of_processes_ends_in_the_same_bits(
    launcher: Launcher, command: list[object], tmp_path: Path, settings: str
) -> None:
    more = ["--preset", settings, "--set", "guard_relative=0.05"]
    if settings in ("calibrated", "default"):
        # Two steps do not take a tiny model's answers to their level.
        unseen = [json.dumps(example.to_dict()) for example in tiny.examples(5, 3000)]
        (tmp_path / "unseen.jsonl").write_text("\n".join(unseen))
        more += ["--set=least_reached=0", "--reference", str(tmp_path / "unseen.jsonl")]
    if settings == "paper":  # whose step is one
        command = [argument for argument in command if argument != "--set=steps=2"]
    states = []
    for size in (1, 2, 3) if settings == "deep" else (1, 2):
        output, state = tmp_path / f"output{size}", tmp_path / f"state{size}"
        patch = _COUNT_PASSES.format(folder=str(output))
        ended = launcher.run(size, [*command, *more, "--state", state], output, patch)
        assert [end.code for end in ended[1:]] == [0] * (size - 1)
        assert ended[0].code in (0, 1), ended[0].err
        assert f"state {state}: generation" in ended[0].out
        # The first process alone speaks, and all of them work.
        assert all(end.out == "" for end in ended[1:])
        passes = [len((output / f"passes{rank}").read_text()) for rank in range(size)]
        assert max(passes) - min(passes) <= 0.5 * max(passes)
        states.append(state)
    assert len(story(states[0])) == REQUESTS
    for state in states[1:]:
        assert tensors(state) == tensors(states[0])
        assert story(state) == story(states[0])
        assert [check for check in verify_state(state) if not check.passed] == []


@pytest.mark.parametrize("preset", ["default", "deep", "calibrated"])
def test_weights_spread_over_the_processes_end_in_the_same_bits(
    launcher: Launcher, command: list[object], tmp_path: Path, preset: str
) -> None:
    """With three, of which one has no pass of its own in every second turn."""
    size, output = 3, tmp_path / "output"
    command = [*command, "--preset", preset, "--set", "guard_relative=0.05"]
    if preset != "deep":
        command.append("--set=least_reached=0")
    weigh = f"""
import tfrnet.distributed.processes as processes
real = processes.shard
def shard(model, device):
    whole = sum(p.numel() for p in model.parameters())
    real(model, device)
    own = sum(p.to_local().numel() for p in model.parameters())
    with open({str(output)!r} + f"/share{{rank}}", "w") as file:
        file.write(str(own / whole))
processes.shard = shard
"""
    fsdp = {"ACCELERATE_USE_FSDP": "true", "FSDP_CPU_RAM_EFFICIENT_LOADING": "true"}
    spread = [*command, "--state", tmp_path / "spread"]
    ended = launcher.run(size, spread, output, weigh, fsdp)
    assert ended[0].code in (0, 1), ended[0].err
    shares = [float((output / f"share{rank}").read_text()) for rank in range(size)]
    assert sum(shares) == pytest.approx(1, abs=0.02)
    assert max(shares) < 0.6
    launcher.run(1, [*command, "--state", tmp_path / "whole"], output)
    assert tensors(tmp_path / "spread") == tensors(tmp_path / "whole")
    assert story(tmp_path / "spread") == story(tmp_path / "whole")


@pytest.mark.slow
def test_all_processes_agree_on_groups_of_the_guard(
    launcher: Launcher, command: list[object], tmp_path: Path
) -> None:
    lines = [
        replace(example, group="ab"[number % 2]).to_dict()
        for number, example in enumerate(tiny.examples(8, 100))
    ]
    guard = tmp_path / "guard.jsonl"
    guard.write_text("".join(json.dumps(line) + "\n" for line in lines))
    # So tight that steps are shortened, or refused, for one group or the other.
    more = ["--preset", "deep", "--guard", guard, "--set=hold_guard=false"]
    more += ["--set=guard_relative=0.00002", "--set=guard_examples=8"]
    states = [tmp_path / f"state{size}" for size in (1, 2)]
    for size, state in enumerate(states, start=1):
        ended = launcher.run(size, [*command, *more, "--state", state], tmp_path / f"output{size}")
        assert [end.code in (0, 1) for end in ended] == [True] * size, ended[0].err
    alone, shared = map(story, states)
    assert shared == alone
    assert tensors(states[1]) == tensors(states[0])
    assert all(set(entry["guard_groups"]) == {"a", "b"} for entry in alone)
    assert any(entry["attempts"] > 2 for entry in alone)


def test_only_the_first_process_writes(
    launcher: Launcher, command: list[object], tmp_path: Path
) -> None:
    """The other one would end at once if it touched a state's file."""
    forbidden = """
import os, tfrnet.core.files as fs
if rank:
    for name in ("write", "fsync", "rename", "truncate", "replace_file"):
        setattr(fs, name, lambda *a, **b: os._exit(9))
"""
    arguments = [*command, "--state", tmp_path / "state"]
    first, second = launcher.run(2, arguments, tmp_path / "output", forbidden)
    assert first.code in (0, 1), first.err
    assert second.code == 0
    assert StateStore.open(tmp_path / "state").history.requests_seen == REQUESTS
