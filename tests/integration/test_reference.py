"""Levels on the command line: `--reference`, requests that need no step, and those out of reach."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import tiny
from tests.integration.commands import DEEP, FEW, Files, Refused, Tfrnet, write_lines

CALIBRATED = ["--preset", "calibrated", *FEW, "--set", "least_reached=0"]
UNSEEN = tiny.examples(4, offset=3000)


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "unseen.jsonl", [example.to_dict() for example in UNSEEN])


def test_the_ledger_says_that_they_were_used_but_not_their_words(
    tfrnet: Tfrnet, files: Files, tmp_path: Path, reference: Path
) -> None:
    state = tmp_path / "new"
    run = ["run", "--stream", files.stream, *files.opening(state)]
    found = tfrnet(*run, *CALIBRATED, "--reference", reference)
    assert (found.code, found.unexpected) == (0, [])
    entries = tfrnet("history", "--state", state, "--json").json["entries"]
    records = [entry["reference"] for entry in entries if entry["kind"] == "request"]
    assert len(records) == 3
    assert records[0]["examples"] == 4
    assert len(records[0]["digest"]) == 64
    assert records[0] == records[1] == records[2]
    history = tfrnet("history", "--state", state)
    assert history.out.count(", levels of 4 reference examples") == 3
    ledger = (state / "ledger.jsonl").read_text()
    assert not any(example.prompt in ledger or example.answer in ledger for example in UNSEEN)
    assert tfrnet("verify", "--state", state).code == 0


def test_the_ledger_says_that_wrong_answers_were_used_but_not_their_words(
    tfrnet: Tfrnet, files: Files, tmp_path: Path
) -> None:
    request = tiny.requests(1, size=2)[0].to_dict()
    request["examples"][0]["wrong_answers"] = ["Zanzibar", "Uzbekistan"]
    stream = write_lines(tmp_path / "wrong.jsonl", [request])
    entries = {}
    for use in ("true", "false"):
        state = tmp_path / use
        settings = [*CALIBRATED, "--set", f"use_wrong_answers={use}"]
        found = tfrnet("run", "--stream", stream, *files.opening(state), *settings)
        assert (found.code, found.unexpected) == (0, [])
        entries[use] = tfrnet("history", "--state", state, "--json").json["entries"][-1]
        named = ", 2 wrong answers named" in tfrnet("history", "--state", state).out
        assert named == (use == "true")
        assert "Zanzibar" not in (state / "ledger.jsonl").read_text()
    assert entries["true"]["wrong_answers"]["examples"] == 2
    assert "wrong_answers" not in entries["false"]


def test_what_cannot_serve_is_refused_before_a_model_is_loaded(
    refused: Refused, files: Files, tmp_path: Path, reference: Path, no_model: None
) -> None:
    assert refused("--reference", reference, *DEEP) == (
        "reference examples have no effect here; they need step=calibrate"
    )
    assert refused("--reference", reference, "--method", "npo") == (
        "reference examples have no effect with this method"
    )
    assert refused("--reference", files.retain, *CALIBRATED).startswith(
        "reference data overlaps retain data: lines 1, 2, 3, "
    )
    assert "overlaps guard data" in refused(
        "--reference", reference, *CALIBRATED, "--guard", reference
    )
    assert "overlaps hold-out data" in refused(
        "--reference", reference, *CALIBRATED, "--holdout", reference
    )
    request = tiny.requests(3, size=2)[2].examples[1].to_dict()
    same = write_lines(tmp_path / "same.jsonl", [{"text": "One more."}, request])
    assert refused("--reference", same, *CALIBRATED) == (
        "reference data overlaps request 'request-2': the same example is on line 2 of the "
        "reference data; remove it"
    )


def test_a_state_of_another_step_refuses_them(
    tfrnet: Tfrnet, files: Files, reference: Path, no_model: None
) -> None:
    ledger = (files.state / "ledger.jsonl").read_bytes()
    result = tfrnet(
        *("forget", "--request", files.request, *files.opening(), "--reference", reference)
    )
    assert (result.code, "they need step=calibrate" in result.error) == (2, True)
    assert (files.state / "ledger.jsonl").read_bytes() == ledger


@pytest.mark.parametrize("settings", [FEW, CALIBRATED], ids=["default", "calibrated"])
def test_what_the_model_does_not_know_is_said_and_nothing_moves(
    tfrnet: Tfrnet, files: Files, tmp_path: Path, settings: list[str]
) -> None:
    forget = ["forget", "--request", files.request, *files.opening(tmp_path / "new"), *settings]
    result = tfrnet(*forget)
    assert result.code == 0
    assert result.out.startswith(
        "request-2: accepted, without a change (nothing to do: the untouched model does not know "
        "this (no answer is above its level)); forget loss "
    )


def test_a_request_out_of_reach_is_rejected_with_how_far_it_came(
    tfrnet: Tfrnet, files: Files, tmp_path: Path, reference: Path
) -> None:
    deep = ["--reference", reference, "--set", "level_quantile=1", "--set", "least_reached=1"]
    options = [*files.opening(tmp_path / "new"), *CALIBRATED, *deep]
    result = tfrnet("forget", "--request", files.request, *options)
    assert result.code == 1
    said = r"request-2: rejected, nothing changed \([01] of 2 examples reached their level, the "
    said += r"others are \d+\.\d log-odds above it on average, and least_reached=1 asks for more\)"
    assert re.match(said, result.out)
    last = tfrnet("history", "--state", tmp_path / "new", "--json").json["entries"][-1]
    assert (last["outcome"], last["generation"]) == ("rejected", 0)
