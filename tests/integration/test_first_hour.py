"""The first hour of a new user, from an empty folder to an export: in a terminal and in a pipe."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.commands import FAST
from tests.integration.listening import Listener, Said, Tfrnet, in_this_process
from tfrnet.state.store import StateStore

# A tiny random model knows nothing, so nothing that it loses matters.
TINY = [*FAST, "--set", "guard_relative=10"]
PROMPTS = ["--prompt", "The capital of Portugal is", "--prompt", "The capital of Italy is"]
PROMPTS += ["--max-new-tokens", "8"]
ESCAPE = "\x1b["


def in_processes(terminal: bool) -> Tfrnet:
    environment = {name: value for name, value in os.environ.items() if name != "TFRNET_QUIET"}

    def run(*arguments: object) -> Said:
        heard = Listener(terminal)
        command = [sys.executable, "-m", "tfrnet", *map(str, arguments)]
        streams = {"stdin": subprocess.DEVNULL, "stdout": heard.writing, "stderr": heard.writing}
        done = subprocess.run(command, env=environment, check=False, **streams)
        os.close(heard.writing)
        return heard.end(done.returncode)

    return run


def first_hour(tfrnet: Tfrnet, terminal: bool, model: list[object], fast: list[str]) -> list[Said]:
    """Do what the README and the example folder say; return all that was said."""
    heard: list[Said] = []

    def step(*arguments: object) -> str:
        said = tfrnet(*arguments)
        heard.append(said)
        assert said.code == 0, said.text
        assert "Traceback" not in said.text
        if not terminal:
            assert ESCAPE not in said.text
            assert "\r" not in said.text
        return said.text

    assert "README.txt" in step("init", "first")
    os.chdir("first")
    alone = step("generate", *PROMPTS, *model)
    assert "before" not in alone
    data = ["--retain", "retain.jsonl", "--guard", "guard.jsonl", "--holdout", "holdout.jsonl"]
    told = step("run", "--stream", "requests.jsonl", *data, *model, *fast)
    assert all(f"{name}: accepted" in told for name in ("facts-1", "passage-1", "french-1"))
    assert "3 applied and 0 rejected" in told
    assert told.count("audit: ") == 3
    audit = ["--requests", "requests.jsonl", "--retain", "retain.jsonl", *model]
    assert "wordings" in step("audit", *audit, "--holdout", "holdout.jsonl")
    status = step("status")
    assert "3 applied, 0 rejected, 3 seen in total" in status
    change = re.search(r"changed by .* on average, .* at most", status)
    assert change
    assert change[0] in told
    assert change[0] in step("history")
    asked = step("generate", *PROMPTS)
    assert "before" in asked
    assert "after" in asked
    Path("answers.json").write_text(
        json.dumps({"generations": [{"prompt": "p", "before": "b", "after": "a"}]})
    )
    assert "wrote report.html" in step(
        "report", "tfrnet-state", "--texts", "answers.json", "--out", "report.html"
    )
    step("rollback", "--to", 1)
    assert "FAILED" not in step("verify")
    step("export", "--out", "unlearned")
    assert StateStore.open(Path("tfrnet-state")).history.applied.keys() == {"facts-1"}
    assert Path("unlearned/config.json").stat().st_mode & 0o777 == 0o644
    assert Path("unlearned/model.safetensors").stat().st_mode & 0o777 == 0o644
    return heard


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")


@pytest.mark.usefixtures("empty_folder")
@pytest.mark.parametrize(
    "terminal",
    [pytest.param(True, id="terminal"), pytest.param(False, id="pipe", marks=pytest.mark.slow)],
)
def test_the_first_hour_with_a_tiny_model(terminal: bool, tiny_folder: Path) -> None:
    model = ["--model", tiny_folder, "--device", "cpu"]
    heard = first_hour(in_this_process(terminal), terminal, model, TINY)
    if terminal:  # answers that come one after another are drawn again and again
        assert any(ESCAPE in said.text for said in heard)


@pytest.mark.long
@pytest.mark.real
@pytest.mark.slow
@pytest.mark.usefixtures("empty_folder")
@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "pipe"])
def test_the_first_hour_with_the_default_model(terminal: bool) -> None:
    heard = first_hour(in_processes(terminal), terminal, [], [])
    run = heard[2]
    assert "request 1 of 3 (facts-1)" in run.text
    assert re.search(r"step \d+ of at most \d+: ", run.text)
    assert re.search(r"about \d+:\d\d left", run.text)
    if not terminal:
        assert re.search(r"^\d\d:\d\d:\d\d request \d of 3 ", run.text, flags=re.MULTILINE)
        # A line at least every ten seconds on an idle machine; here other tests run beside it.
        assert max(said.gap for said in heard) < 30
