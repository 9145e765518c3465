"""`--holdout` on the command line: in every report, and refused before a model loads."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import tiny
from tests.integration.commands import FAST, Files, Refused, Tfrnet, write_lines


@pytest.fixture
def holdout(tmp_path: Path) -> Path:
    examples = [example.to_dict() for example in tiny.examples(4, offset=500)]
    return write_lines(tmp_path / "holdout.jsonl", examples)


def test_it_is_in_every_report(tfrnet: Tfrnet, files: Files, tmp_path: Path, holdout: Path) -> None:
    options = [*files.opening(tmp_path / "new"), *FAST, "--holdout", holdout]
    run = tfrnet("run", "--stream", files.stream, *options)
    assert run.code == 0
    assert run.out.count("  hold-out: loss ") == 3
    status = tfrnet("status", "--state", tmp_path / "new")
    assert "\nhold-out     loss " in status.out
    assert "4 examples" in status.out
    found = tfrnet("status", "--state", tmp_path / "new", "--json").json["holdout"]
    history = tfrnet("history", "--state", tmp_path / "new")
    assert history.out.count("hold-out loss ") == 3
    last = tfrnet("history", "--state", tmp_path / "new", "--json").json["entries"][-1]
    assert last["holdout"] == found
    assert tfrnet("report", tmp_path / "new", "--out", tmp_path / "page.html").code == 0
    page = (tmp_path / "page.html").read_text()
    assert f"{found['loss_after']:.3f} now" in page
    assert '"holdout_loss_after":[' in page
    tfrnet("rollback", "--to", 0, "--state", tmp_path / "new")
    assert "hold-out" not in tfrnet("status", "--state", tmp_path / "new").out


def test_data_that_is_used_is_refused(
    refused: Refused, files: Files, tmp_path: Path, holdout: Path, no_model: None
) -> None:
    assert refused("--holdout", files.retain).startswith(
        "hold-out data overlaps retain data: lines 1, 2, 3, "
    )
    assert "overlaps guard data" in refused("--holdout", holdout, "--guard", holdout)
    request = tiny.requests(3, size=2)[2].examples[1].to_dict()
    same = write_lines(tmp_path / "same.jsonl", [{"text": "One more."}, request])
    assert refused("--holdout", same) == (
        "hold-out data overlaps request 'request-2': the same example is on line 2 of the "
        "hold-out data; remove it"
    )
