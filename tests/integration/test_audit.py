"""The audit on the command line: after each request, and at any time."""

from __future__ import annotations

import re
from pathlib import Path

from tests import tiny
from tests.integration.commands import FAST, Files, Tfrnet, write_lines


def test_forget_ends_with_an_audit(tfrnet: Tfrnet, files: Files, tmp_path: Path) -> None:
    opening = [*files.opening(tmp_path / "new"), *FAST]
    result = tfrnet("forget", "--request", files.request, *opening)
    assert result.code == 0
    first, *rest = result.out.splitlines()
    assert first.startswith("request-2: ")
    names = [line.split()[0] for line in rest]
    assert names == ["prompt", "before", "after"] * 2 + ["audit:", "total"]
    # In the same words as wherever else it is shown.
    verdict = rest[-2].removeprefix("  audit: ").partition(";")[0]
    assert verdict.partition(", ")[0] in tfrnet("history", "--state", tmp_path / "new").out
    assert tfrnet("report", tmp_path / "new", "--out", tmp_path / "page.html").code == 0
    shown = re.search(r'"wordings":\["([^"]*)"', (tmp_path / "page.html").read_text())
    assert shown
    assert re.fullmatch(r"\d+ of \d+ wordings before, (none|\d+) after", shown[1])


def test_it_can_be_switched_off(tfrnet: Tfrnet, files: Files, tmp_path: Path) -> None:
    opening = [*files.opening(tmp_path / "new"), *FAST, "--no-audit"]
    result = tfrnet("forget", "--request", files.request, *opening)
    assert len(result.out.splitlines()) == 1
    entries = tfrnet("history", "--state", tmp_path / "new", "--json").json["entries"]
    assert "audit" not in entries[-1]


def test_at_any_time_over_all_requests(tfrnet: Tfrnet, files: Files, tmp_path: Path) -> None:
    ledger = (files.state / "ledger.jsonl").read_bytes()
    holdout = [example.to_dict() for example in tiny.examples(3, offset=500)]
    options = [
        *("--requests", files.stream, "--retain", files.retain, "--state", files.state),
        *("--holdout", write_lines(tmp_path / "holdout.jsonl", holdout), "--device", "cpu"),
    ]
    result = tfrnet("audit", *options)
    assert result.code == 0
    # The third request of the file is not applied.
    assert result.err == "left out: 1 of 3 requests, which are not applied\n"
    names = [line.partition(":")[0] for line in result.out.splitlines()]
    assert names[:3] == ["request-0", "request-1", "all 2 requests"]
    found = tfrnet("audit", *options, "--json").json
    assert list(found["requests"]) == ["request-0", "request-1"]
    assert found["wordings"]["tried"] == sum(
        given["tried"]
        for figures in found["requests"].values()
        for given in figures["wordings"].values()
    )
    assert found["holdout"]["examples"] == 3
    assert found["drift"] > 0
    assert (files.state / "ledger.jsonl").read_bytes() == ledger


def test_requests_that_are_not_applied_are_refused(
    tfrnet: Tfrnet, files: Files, no_model: None
) -> None:
    result = tfrnet("audit", "--requests", files.request, "--state", files.state)
    assert result.code == 2
    assert result.error.startswith("none of the 1 requests is applied in state ")


def test_kept_data_that_overlaps_what_was_forgotten_is_refused(
    tfrnet: Tfrnet, files: Files, tmp_path: Path, no_model: None
) -> None:
    """Its figures would tell of the forgetting, not of what else was lost."""
    forgotten = tiny.requests(3, size=2)[1].examples[0].to_dict()
    same = write_lines(tmp_path / "same.jsonl", [{"text": "One more."}, forgotten])
    audit = ["audit", "--requests", files.stream, "--state", files.state]
    for option, label in (("--holdout", "hold-out data"), ("--retain", "retain data")):
        result = tfrnet(*audit, option, same)
        assert result.code == 2
        assert f"{label} overlaps request 'request-1': the same example is on line 2" in result.err
    both = tfrnet(*audit, "--holdout", files.retain, "--retain", files.retain)
    assert (both.code, "hold-out data overlaps retain data: lines 1" in both.err) == (2, True)
