"""`run` and `forget` without `--retain`: the model's own text, and what is said about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.commands import FAST, Files, Tfrnet
from tfrnet.models import own_text


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_text, "TEXTS", 20)


def test_the_models_own_text_stands_in_until_there_is_better(
    tfrnet: Tfrnet, files: Files, tmp_path: Path
) -> None:
    where = ["--model", files.model, "--state", tmp_path / "new", "--device", "cpu"]
    run = tfrnet("run", "--stream", files.stream, *where, *FAST)
    assert run.code in (0, 1)
    assert "lines that the model wrote itself stand in for them; data of your own " in run.err
    assert run.unexpected == []
    again = tfrnet("run", "--stream", files.stream, *where)
    assert "3 of 3 requests were already done" in again.out
    given = tfrnet("run", "--stream", files.stream, *where, "--retain", files.retain)
    assert "this state was begun without retain data: its steps now use yours " in given.err
    assert "stand in for them" not in given.err
    assert tfrnet("verify", "--state", tmp_path / "new").code == 0


def test_a_state_with_retain_data_is_refused_before_a_model_is_loaded(
    tfrnet: Tfrnet, files: Files, no_model: None
) -> None:
    where = ["--model", files.model, "--state", files.state, "--device", "cpu"]
    result = tfrnet("forget", "--request", files.request, *where)
    assert result.code == 2
    assert result.error == (
        f"state {files.state} was begun with retain data, so it needs them (--retain)"
    )
