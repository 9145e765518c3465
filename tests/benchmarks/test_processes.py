"""The trial of several processes on one device, with a model of no size."""

import json

from benchmarks import processes
from benchmarks.processes import Trial


def test_two_processes_and_spread_weights_end_in_the_bits_of_one(tmp_path, monkeypatch, capsys):
    trials = [Trial(1), Trial(2, "gloo", spread=True)]
    monkeypatch.setattr(processes, "TRIALS", trials)
    path = tmp_path / "processes.json"
    few = ["--shape", "tiny", "--device", "cpu", "--requests", "1"]
    assert processes.main(["--json", str(path), *few]) == 0
    one, two = json.loads(path.read_text())["trials"]
    assert two["processes"] == 2 and two["spread"] and two["same"]
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
