"""Tuning without the command line, on a model of no size."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import tune
from tests.datasets import made_up_folder


@pytest.mark.slow
def test_a_probe_says_what_fits_and_a_search_goes_on_from_known_trials(
    tiny_folder: Path, tmp_path: Path, capsys
):
    data = made_up_folder(tmp_path / "data", 120)
    small = ["--methods", "ga", "--streams", "openbookqa", "--seeds", "1000", "--heldout", "2"]
    where = ["--data-dir", str(data), "--model", str(tiny_folder), "--device", "cpu"]
    first = tmp_path / "first"
    tune.main(["probe", str(first), "--probe-requests", "1", *small, *where])
    said = capsys.readouterr().out
    assert "ga " in said and "s a request" in said
    assert "trials of every method (1 streams each) fit into 8 minutes of 1 processes" in said

    few = ["--requests", "1", "--trials", "1"]
    tune.main(["search", str(first), "--minutes", "0", *few, *small, *where])
    assert "no trial is whole for every method yet" in capsys.readouterr().out
    tune.main(["search", str(first), "--minutes", "30", *few, *small, *where])
    said = capsys.readouterr().out
    assert "budget of every method: 1 of 1 trials, each 1 streams x 1 seeds x 1 requests" in said
    assert "warning: the best of ga by the honest Trade-off lies on the edge" in said

    trials, second = first / "trials.jsonl", tmp_path / "second"
    tune.main(["search", str(second), "--known", str(trials), *few, *small, *where])
    assert (second / "trials.jsonl").read_text() == trials.read_text()
    assert json.loads((second / "chosen.json").read_text())["budget"]["trials"] == 1
