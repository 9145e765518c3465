"""A tfrnet to call, and files for it: a user's, and those of an evaluation."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from tests import tiny
from tests.datasets import made_up_folder
from tests.integration.commands import (
    FAST,
    FEW,
    SMALL,
    Files,
    Refused,
    Result,
    Tfrnet,
    run_main,
    write_lines,
)
from tfrnet.session import Session


@pytest.fixture
def tfrnet(capsys: pytest.CaptureFixture[str]) -> Tfrnet:
    """Runs a command in this process."""

    def run(*arguments: object) -> Result:
        capsys.readouterr()
        code = run_main(arguments)
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return run


@pytest.fixture
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading a model is a failure of the test."""

    def refuse(*arguments: object) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr("tfrnet.models.load.load_model", refuse)


@pytest.fixture(scope="module")
def prepared(tiny_folder: Path, tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("cli")
    requests = [request.to_dict() for request in tiny.requests(3, size=2)]
    close = [
        {"prompt": f"So {example['prompt']}", "answer": example["answer"]}
        for request in requests
        for example in request["examples"]
    ]
    retain = write_lines(folder / "retain.jsonl", [e.to_dict() for e in tiny.examples(10)])
    model = AutoModelForCausalLM.from_pretrained(tiny_folder)
    config = tiny.deep().with_overrides(part for part in FEW if part != "--set")
    with Session(
        model,
        tokenizer,
        folder / "state",
        tiny.examples(10),
        config=config,
        model_name=str(tiny_folder),
    ) as session:
        assert all(outcome.accepted for outcome in session.run(tiny.requests(2, size=2)))
    return Files(
        tiny_folder,
        retain,
        write_lines(folder / "stream.jsonl", requests),
        write_lines(folder / "request.jsonl", requests[2:]),
        write_lines(folder / "guard.jsonl", close),
        folder / "state",
    )


@pytest.fixture
def files(prepared: Files, tmp_path: Path) -> Files:
    return prepared._replace(state=shutil.copytree(prepared.state, tmp_path / "state"))


@pytest.fixture
def refused(tfrnet: Tfrnet, files: Files, tmp_path: Path) -> Refused:
    """Begins a state with options that are refused, and returns the error."""

    def forget(*options: object) -> str:
        state = tmp_path / "new"
        result = tfrnet("forget", "--request", files.request, *files.opening(state), *options)
        assert result.code == 2
        assert not state.exists()
        return result.error

    return forget


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache for each test, and no data folder that is not named."""
    monkeypatch.setenv("TFRNET_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TFRNET_DATA", raising=False)
    return tmp_path / "cache" / "evaluations"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_up_folder(tmp_path_factory.mktemp("data"), rows=100)


@pytest.fixture(scope="module")
def split(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("split") / "obqa"
    assert (
        run_main(("split", "--task", "openbookqa", "--out", out, "--data-dir", data, *SMALL)) == 0
    )
    return out


@pytest.fixture(scope="module")
def state(split: Path, tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `tfrnet run` leaves of the split's stream."""
    folder = tmp_path_factory.mktemp("state") / "state"
    data = ["--stream", split / "requests.jsonl", "--retain", split / "retain.jsonl"]
    where = ["--model", tiny_folder, "--state", folder, "--device", "cpu"]
    run_main(("run", *data, *where, *FAST))
    return folder
