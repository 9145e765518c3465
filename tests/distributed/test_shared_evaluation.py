"""Several real processes share an evaluation."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.datasets import made_up_folder
from tests.distributed.launcher import Launcher, said


def test_an_evaluation_is_shared_and_says_the_same(
    launcher: Launcher, tiny_folder: Path, tmp_path: Path
) -> None:
    made_up_folder(tmp_path / "data")
    arguments = ["eval", "--model", tiny_folder, "--device", "cpu", "--data-dir", tmp_path / "data"]
    arguments += ["--tasks", "boolq,arithmetic", "--limit", "7", "--batch-size", "2", "--json"]
    found = []
    for size in (1, 2):
        own = {"TFRNET_CACHE": str(tmp_path / f"cache{size}")}
        samples = tmp_path / f"samples{size}"
        more = ["--samples", samples]
        ended = launcher.run(size, [*arguments, *more], tmp_path / f"output{size}", "", own)
        assert [end.code for end in ended] == [0] * size, ended[0].err
        assert [end.out for end in ended[1:]] == [""] * (size - 1)
        result = json.loads(ended[0].out)
        assert result["cached"] == 0
        found.append((result["results"], samples.read_text()))
    assert found[0] == found[1]
    # The second time nothing is computed, by any process.
    again = launcher.run(2, arguments, tmp_path / "output2", "", own)
    assert json.loads(again[0].out)["cached"] > 0
    assert json.loads(again[0].out)["results"] == found[1][0]
    ended = launcher.run(2, arguments, tmp_path / "fsdp", "", {"ACCELERATE_USE_FSDP": "true"})
    assert "not be evaluated" in said(ended[0])


@pytest.mark.parametrize(
    ("patch", "complaint"),
    [
        (
            "import sys\nif rank: sys.argv[sys.argv.index('--seed') + 1] = '7'",
            "the processes differ in what is asked",
        ),
        (
            "import sys\nif rank: sys.argv[sys.argv.index('--data-dir') + 1] = 'nowhere'",
            "process 1: ",
        ),
    ],
    ids=["other", "missing"],
)
def test_an_evaluation_of_different_data_is_refused(
    launcher: Launcher, tiny_folder: Path, tmp_path: Path, patch: str, complaint: str
) -> None:
    made_up_folder(tmp_path / "data")
    arguments = ["eval", "--model", tiny_folder, "--device", "cpu", "--data-dir", tmp_path / "data"]
    arguments += ["--tasks", "boolq", "--limit", "4", "--seed", "0", "--no-cache"]
    start = time.monotonic()
    first, second = launcher.run(2, arguments, tmp_path / "output", patch)
    assert time.monotonic() - start < 60
    assert first.code == 2
    assert complaint in said(first)
    assert (second.code, second.err) == (0, "")
