"""The trial of several processes on one device, with a model of no size."""

import json
from dataclasses import asdict

import pytest

from benchmarks import processes
from benchmarks.processes import Trial


@pytest.mark.slow
def test_two_processes_and_spread_weights_end_in_the_bits_of_one(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(processes, "TRIALS", [Trial(2, "gloo", spread=True)])
    few = ["--shape", "tiny", "--device", "cpu", "--requests", "1"]
    assert processes.main(["--json", str(tmp_path / "two.json"), *few]) == 0
    # Alone it needs no process of its own.
    alone = json.dumps(asdict(Trial(1)))
    assert processes.main(["--json", str(tmp_path / "one.json"), *few, "--trial", alone]) == 0
    (two,) = json.loads((tmp_path / "two.json").read_text())["trials"]
    one = json.loads((tmp_path / "one.json").read_text())
    assert one["states"] == two["states"]
    assert len(one["states"]) == 1 and one["states"][0][1] == "accepted"


def test_a_trial_that_fails_or_differs_is_told(tmp_path, monkeypatch, capsys):
    found = iter(
        [{"states": [1]}, {"error": "exit codes [0, 1]"}, {"states": [2]}, {"states": [1]}]
    )
    monkeypatch.setattr(processes, "run", lambda trial, options: next(found))
    path = tmp_path / "processes.json"
    assert processes.main(["--json", str(path), "--device", "cpu"]) == 1
    told = [trial["same"] for trial in json.loads(path.read_text())["trials"]]
    assert told == [True, False, False, True]
