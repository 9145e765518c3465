"""Running a grid: every cell once, whatever happens in between."""

from __future__ import annotations

import json
import multiprocessing
import os
import struct
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.bench.run.setting import bench, make_machine, make_plan
from tfrnet.core.lock import FolderLock
from tfrnet.evaluation.metrics.continual import trade_off
from tfrnet.method import find_method
from tfrnet_bench.machine import Machine
from tfrnet_bench.run import cell_run
from tfrnet_bench.run.runner import _listen, _on_device, run_bench
from tfrnet_bench.run.worker import Event, Worker
from tfrnet_bench.run_folder import CellFolder

pytestmark = pytest.mark.filterwarnings("ignore")


def results(out: Path) -> dict[str, dict]:
    found = {}
    for path in sorted(out.rglob("result.json")):
        found[str(path.parent.relative_to(out / "cells"))] = json.loads(path.read_text())
    return found


def without_times(result: dict) -> dict:
    """Return what two runs of a cell must have in common."""
    kept = {key: value for key, value in result.items() if key not in ("seconds", "peak_bytes")}
    kept["provenance"] = {k: v for k, v in kept["provenance"].items() if k != "started"}
    kept["requests"] = [
        {key: value for key, value in request.items() if key not in ("seconds", "memory")}
        | {"details": {k: v for k, v in request["details"].items() if k != "detector_seconds"}}
        for request in kept["requests"]
    ]
    return kept


@pytest.mark.slow
def test_results_hold_what_can_be_computed_from_their_items(tmp_path: Path, tiny_folder: Path):
    plan = make_plan(tiny_folder, streams=("boolq",))
    tally, events = bench(plan, make_machine(tmp_path), tmp_path / "out")
    assert len(tally.done) == tally.total == 4
    assert [event.kind for event in events] == ["begun", "done"] * 4
    found = results(tmp_path / "out")
    for result in found.values():
        fixed = [i for i, bit in enumerate(result["items"]["fixed"]) if bit == "1"]
        rows = result["items"]["correct"]
        assert len(rows) == 3
        assert len(fixed) == 5
        for point in result["checkpoints"]:
            share = 100 * sum(rows[point["request"]][i] == "1" for i in fixed) / 5
            assert point["forget"] == pytest.approx(share)
        later = [point for point in result["checkpoints"] if point["request"]]
        forget = sum(point["forget"] for point in later) / 2
        retain = sum(sum(point["retain"].values()) / 3 for point in later) / 2
        assert result["scores"]["trade_off"] == pytest.approx(trade_off(forget, retain))
        assert result["floors"]["boolq"]
        assert result["provenance"]["versions"]["torch"]
        # No words of a dataset are in what may be published.
        assert "stood" not in json.dumps(result)
        # What the untouched model knew is the same for all.
        assert result["checkpoints"][0] == found["stream/boolq/none/0"]["checkpoints"][0]
    untouched = found["stream/boolq/none/0"]
    assert untouched["scores"] == pytest.approx(untouched["untouched"])
    masked = found["stream/boolq/tfr/0"]
    assert len(masked["structure"]["dormant"]) == 3
    assert masked["structure"]["suppressed_now"][-1] == masked["requests"][-1]["suppressed_now"]
    counted = sum(map(sum, masked["channel_map"]["suppressed"]))
    assert counted == masked["requests"][-1]["suppressed_now"]
    samples = (tmp_path / "out/cells/stream/boolq/tfr/0/samples.jsonl").read_text().splitlines()
    assert "stood" in json.loads(samples[0])["prompt"]


@pytest.mark.slow
def test_a_finished_cell_is_computed_again_only_if_its_inputs_changed(
    tmp_path: Path, tiny_folder: Path
):
    machine, out = make_machine(tmp_path), tmp_path / "out"
    bench(make_plan(tiny_folder, methods=("ga",)), machine, out)
    tally, events = bench(make_plan(tiny_folder, methods=("ga",)), machine, out)
    assert events == []
    assert len(tally.kept) == tally.total
    # More steps: a change for the methods, none for the untouched model.
    changed = (("steps", 2), ("guard_examples", 4))
    plan = make_plan(tiny_folder, methods=("ga",), reduced=changed)
    tally, _ = bench(plan, machine, out)
    assert tally.kept == ["stream/arithmetic/none/0"]
    assert tally.done == ["stream/arithmetic/ga/0"]


@pytest.mark.slow
def test_a_cell_that_fails_says_why_and_the_others_go_on(
    tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
):
    machine, out = make_machine(tmp_path), tmp_path / "out"
    plan = make_plan(tiny_folder, methods=("ga", "npo"))

    def broken(*arguments, **options):
        raise RuntimeError("no memory\nfor this")

    with monkeypatch.context() as patch:
        patch.setattr(
            "tfrnet_bench.run.cell_run.find_method",
            lambda name: broken if name == "ga" else find_method(name),
        )
        tally, events = bench(plan, machine, out)
    assert tally.failed == {"stream/arithmetic/ga/0": "RuntimeError: no memory for this"}
    assert len(tally.done) == tally.total - 1
    assert [event.key for event in events if event.kind == "failed"] == ["stream/arithmetic/ga/0"]
    error = json.loads((out / "cells/stream/arithmetic/ga/0/error.json").read_text())
    assert "in broken" in error["traceback"]
    tally, _ = bench(plan, machine, out)
    assert tally.done == ["stream/arithmetic/ga/0"]
    assert not (out / "cells/stream/arithmetic/ga/0/error.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["tfr", "graddiff", "o3"])
def test_a_cell_that_was_killed_goes_on_and_ends_as_if_it_had_not_been(
    tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch, method: str
):
    machine = make_machine(tmp_path)
    plan = make_plan(tiny_folder, methods=(method,))
    key = f"stream/arithmetic/{method}/0"
    bench(plan, machine, tmp_path / "whole")
    monkeypatch.setattr(cell_run, "_SAVE_EVERY", 0.0)
    applied: list[str] = []
    apply = cell_run.CellRun._record

    def record(self, outcome, unlearner):
        if applied.count(outcome.id) == 0 and outcome.id.endswith("02"):
            applied.append(outcome.id)
            raise KeyboardInterrupt
        applied.append(outcome.id)
        apply(self, outcome, unlearner)

    monkeypatch.setattr(cell_run.CellRun, "_record", record)
    with pytest.raises(KeyboardInterrupt):
        bench(plan, machine, tmp_path / "out")
    assert not (tmp_path / "out/cells" / key / "result.json").exists()
    bench(plan, machine, tmp_path / "out")
    assert applied.count("arithmetic-0-01") == (2 if method == "tfr" else 1)  # tfr-paper has it too
    whole, resumed = (results(tmp_path / name)[key] for name in ("whole", "out"))
    assert without_times(resumed) == without_times(whole)
    assert not (tmp_path / "out/cells" / key / "partial").exists()


@pytest.mark.slow
def test_a_cell_that_another_process_has_is_left_to_it(tmp_path: Path, tiny_folder: Path):
    machine, out = make_machine(tmp_path), tmp_path / "out"
    plan = make_plan(tiny_folder, methods=("ga",))
    taken = CellFolder(out, plan.cells()[0].key)
    taken.path.mkdir(parents=True)
    lock = FolderLock(taken.path)
    tally, _ = bench(plan, machine, out)
    assert tally.left == [str(plan.cells()[0].key)]
    lock.release()
    tally, _ = bench(plan, machine, out)
    assert tally.done == [str(plan.cells()[0].key)]


def test_no_cell_begins_after_the_last_minute(tmp_path: Path, tiny_folder: Path):
    plan = make_plan(tiny_folder)
    tally, events = bench(plan, make_machine(tmp_path), tmp_path / "out", minutes=0.0)
    assert not events
    assert len(tally.left) == tally.total


@pytest.mark.slow
def test_a_model_that_a_method_has_damaged_is_loaded_anew(
    tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
):
    machine = make_machine(tmp_path)
    plan = make_plan(tiny_folder, methods=("ga", "npo"))
    bench(plan, machine, tmp_path / "whole")
    monkeypatch.setattr("tfrnet.training.weights_effect.WeightsEffect.detach", lambda self: None)
    bench(plan, machine, tmp_path / "out")
    whole, damaged = results(tmp_path / "whole"), results(tmp_path / "out")
    for key in whole:
        assert without_times(damaged[key]) == without_times(whole[key])


@pytest.mark.long
@pytest.mark.slow
def test_several_processes_share_a_grid_and_one_may_die(tmp_path: Path, tiny_folder: Path):
    plan = make_plan(tiny_folder, methods=("ga",), streams=("arithmetic", "openbookqa", "boolq"))
    machine, out = make_machine(tmp_path, workers=2), tmp_path / "out"
    killed: list[int] = []

    def report(event):
        if event.kind == "begun" and not killed:
            child = multiprocessing.active_children()[0]
            killed.append(child.pid)
            child.kill()

    tally = run_bench(plan, machine, out, report)
    assert killed
    assert len(tally.done) + len(tally.failed) + len(tally.left) == tally.total
    assert len(tally.done) >= tally.total - 2
    for error in tally.failed.values():
        assert "exit code -9" in error
    again, _ = bench(plan, make_machine(tmp_path), out)
    assert len(again.done) + len(again.kept) == again.total
    assert not again.failed


def test_processes_are_spread_over_the_gpus_there_are(
    tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
):
    machine = replace(make_machine(tmp_path), device="auto")

    def devices(machine: Machine) -> list[str]:
        worker = Worker(make_plan(tiny_folder), machine, tmp_path, 0.0, None)
        return [_on_device(worker, i).machine.device for i in range(machine.processes)]

    assert devices(machine) == ["auto"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    assert devices(machine) == ["cuda:0", "cuda:1", "cuda:2"]
    assert devices(replace(machine, device="cuda")) == devices(machine)
    assert devices(replace(machine, workers=5))[3:] == ["cuda:0", "cuda:1"]
    assert devices(replace(machine, device="cpu")) == ["cpu"]
    assert devices(replace(machine, device="cuda:1", workers=2)) == ["cuda:1"] * 2


def test_a_process_that_dies_in_the_middle_of_a_message_is_no_longer_waited_for():
    dying, living = (multiprocessing.Pipe(duplex=False) for _ in range(2))
    for _, writer in (dying, living):
        writer.send(Event("begun", f"cell {writer is living[1]}"))
    length = struct.pack("!i", 100)
    os.write(dying[1].fileno(), length + b"half of it")
    dying[1].close()
    living[1].send(Event("done", "cell True"))
    living[1].close()
    at_work, events = {}, []
    _listen({dying[0], living[0]}, at_work, events.append)
    assert at_work == {dying[0]: "cell False"}
    assert sorted(event.kind for event in events) == ["begun", "begun", "done"]


@pytest.mark.slow
def test_tofu_is_measured_with_its_oracle(tmp_path: Path, tiny_folder: Path):
    plan = make_plan(tiny_folder, experiments=("tofu",), methods=("ga",))
    tally, _ = bench(plan, make_machine(tmp_path), tmp_path / "out")
    assert not tally.failed
    found = results(tmp_path / "out")
    assert set(found) == {"tofu/tofu/ga/0", "tofu/tofu/none/0", "tofu/tofu/retain90/0"}
    for result in found.values():
        assert len(result["truth_ratios"]) == 4
        assert set(result["privacy_scores"]) == {"loss", "zlib", "min_k", "min_k_plus_plus"}
        assert 0 <= result["tofu"]["model_utility"] <= 1
        assert "kept it" not in json.dumps(result)
    assert len(found["tofu/tofu/ga/0"]["requests"]) == 1
    assert found["tofu/tofu/ga/0"]["protocol"]["request_size"] == 20
    # Here the oracle is the same model, so it says the same.
    same = [found[f"tofu/tofu/{name}/0"]["truth_ratios"] for name in ("none", "retain90")]
    assert same[0] == same[1]
