"""The benchmark of passes, on a tiny model."""

import json
from pathlib import Path

import pytest

from benchmarks import passes

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_every_case_is_measured_compiled_and_not(tmp_path, monkeypatch):
    monkeypatch.setattr(passes, "SCORING", [(512, False), (1024, True)])
    monkeypatch.setattr(passes, "GUARD", [4096])
    monkeypatch.setattr(passes, "_SCORED", 4)
    monkeypatch.setattr(passes, "_GUARDED", 5)
    file = tmp_path / "passes.json"
    options = ["--shape", "tiny", "--device", "cpu", "--repeats", "1", "--backend", "aot_eager"]
    passes.main(["--json", str(file), *options])
    result = json.loads(file.read_text())
    assert result["shape"] == "tiny"
    rows = result["rows"]
    assert [row["compiled"] for row in rows] == [False] * 3 + [True] * 3
    assert [row["what"] for row in rows[:3]] == ["score", "score", "guard"]
    assert all(0 < row["seconds"] < 60 for row in rows)


def test_the_figures_of_the_docs_are_those_measured():
    measured = json.loads((ROOT / "benchmarks/results/passes-h200.json").read_text())
    text = (ROOT / "benchmarks/notebook/scale.md").read_text()
    for row in measured["rows"]:
        milliseconds = f"{1000 * row['seconds']:.0f}"
        if row["what"] == "guard":
            assert milliseconds in text
            continue
        layers = "compiled" if row["compiled"] else "as they are"
        activations = "computed again" if row["gradient_checkpointing"] else "kept"
        peak = row["peak_bytes"] / measured["weight_bytes"]
        examples = row["examples_in_a_pass"]
        line = f"| {layers} | {activations} | {examples} | {milliseconds} | {peak:.2f} |"
        assert line in text
