"""Warnings before harm on the command line, and the commands that they name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.commands import FAST, Files, Tfrnet, write_lines
from tfrnet.data.requests import read_examples, read_one_request, read_requests


def test_they_are_said_before_a_request_is_applied(
    tfrnet: Tfrnet, files: Files, tmp_path: Path
) -> None:
    request = {
        "id": "f",
        "examples": [{"prompt": "La capitale du Portugal est", "answer": "Lisbonne"}],
    }
    wanted = write_lines(tmp_path / "one.jsonl", [request])
    result = tfrnet("forget", "--request", wanted, *files.opening(tmp_path / "new"), *FAST)
    lines = result.err.splitlines()
    assert all(line.startswith("tfrnet: warning: ") for line in lines)
    said = "\n".join(lines)
    assert "the retain data has 10 lines" in said
    assert "the guard's examples are among those that requests use" in said
    assert "no retain line that requests can use seems to be in French, as request f" in said
    assert "no retain line that requests can use is near the topic of request f" in said
    assert "request 'f': the model gives the answer in none of " in said
    assert result.code == 0


def test_split_text_cuts_a_text_file(tfrnet: Tfrnet, tmp_path: Path) -> None:
    text = tmp_path / "passage.txt"
    text.write_text("One two three four five. Six seven eight nine ten. Éleven.")
    result = tfrnet("split-text", text, "--id", "t", "--words", 6, "--out", tmp_path / "r.jsonl")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("t: 1 -> 2 examples\n")
    assert len(read_one_request(tmp_path / "r.jsonl").examples) == 2
    again = tfrnet("split-text", text, "--id", "t", "--out", tmp_path / "r.jsonl")
    assert (again.code, "exists already" in again.error) == (2, True)
    unnamed = tfrnet("split-text", text, "--out", tmp_path / "other.jsonl")
    assert (unnamed.code, unnamed.error.startswith("--id is needed")) == (2, True)


def test_split_text_cuts_the_texts_of_requests(tfrnet: Tfrnet, tmp_path: Path) -> None:
    rows = [
        {"id": "a", "examples": [{"text": "One two three four five six. Seven."}]},
        {"id": "b", "examples": [{"prompt": "P", "answer": "A"}]},
    ]
    source = write_lines(tmp_path / "in.jsonl", rows)
    out = tmp_path / "out.jsonl"
    found = tfrnet("split-text", source, "--words", 6, "--out", out, "--json").json
    assert found["examples"] == {"a": 2, "b": 1}
    assert read_requests(out)[1] == read_requests(source)[1]


def test_anchors_are_written_by_the_model(tfrnet: Tfrnet, files: Files, tmp_path: Path) -> None:
    out = tmp_path / "anchors.jsonl"
    options = ["--requests", files.stream, "--model", files.model, "--device", "cpu"]
    result = tfrnet("anchors", *options, "--out", out, "--json")
    assert (result.code, result.err) == (0, "")
    lines = read_examples(out)
    assert len(lines) == result.json["lines"] > 0
    answers = [
        example["answer"]
        for line in files.stream.read_text().splitlines()
        for example in json.loads(line)["examples"]
    ]
    assert not any(answer in line.joined for answer in answers for line in lines)


@pytest.mark.usefixtures("no_model")
def test_anchors_that_cannot_be_kept_are_refused_before_the_model_writes(
    tfrnet: Tfrnet, files: Files, tmp_path: Path
) -> None:
    options = ["anchors", "--requests", files.stream, "--model", files.model]
    nowhere = tmp_path / "none" / "anchors.jsonl"
    result = tfrnet(*options, "--out", nowhere)
    assert result.code == 2
    assert result.error == f"{nowhere} cannot be written: No such file or directory"
    assert "exists already" in tfrnet(*options, "--out", files.stream).error


def test_what_is_refused_later_leaves_no_file(tfrnet: Tfrnet, files: Files, tmp_path: Path) -> None:
    out = tmp_path / "anchors.jsonl"
    options = ["--requests", files.stream, "--model", "./no-such-model"]
    assert tfrnet("anchors", *options, "--out", out).code == 2
    assert not out.exists()
