"""`run`, `forget` and `serve` without `--retain`: the model's own text, and what is said of it."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path

import pytest

from tests.integration.commands import FAST, Files, Tfrnet
from tests.states import story, tensors
from tfrnet.models import own_text
from tfrnet.serve.client import Client
from tfrnet.serve.server import Server


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_text, "TEXTS", 20)


def test_the_models_own_text_stands_in_until_there_is_better(
    tfrnet: Tfrnet, files: Files, tmp_path: Path
) -> None:
    where = ["--model", files.model, "--state", tmp_path / "new", "--device", "cpu"]
    run = tfrnet("run", "--stream", files.stream, *where, *FAST)
    assert run.code in (0, 1)
    assert "lines that the model wrote itself stand in for it; data of your own " in run.err
    assert run.unexpected == []
    again = tfrnet("run", "--stream", files.stream, *where)
    assert "3 of 3 requests were already done" in again.out
    given = tfrnet("run", "--stream", files.stream, *where, "--retain", files.retain)
    assert "this state was begun without retain data: its steps now use yours " in given.err
    assert "stand in for it" not in given.err
    assert tfrnet("verify", "--state", tmp_path / "new").code == 0


def test_a_state_with_retain_data_is_refused_before_a_model_is_loaded(
    tfrnet: Tfrnet, files: Files, no_model: None
) -> None:
    where = ["--model", files.model, "--state", files.state, "--device", "cpu"]
    for command in (("forget", "--request", files.request), ("serve", "--port", 0)):
        result = tfrnet(*command, *where)
        assert result.code == 2
        assert result.error == (
            f"state {files.state} was begun with retain data, so it needs them (--retain)"
        )


@pytest.mark.slow
def test_a_service_does_as_run_does(
    tfrnet: Tfrnet, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [json.loads(line) for line in files.stream.read_text().splitlines()]

    def serve_the_stream(server: Server, listening: socket.socket) -> None:
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        client = Client(f"http://127.0.0.1:{listening.getsockname()[1]}")
        for request in requests:
            client.submit(request)
            list(client.watch(request["id"]))
        server.handle_exit(15, None)
        thread.join(60)

    monkeypatch.setattr("tfrnet.serve.server.run", serve_the_stream)
    where = ["--model", files.model, "--device", "cpu", *FAST]
    served = tfrnet("serve", *where, "--state", tmp_path / "served", "--port", 0)
    assert served.code == 0
    assert "lines that the model wrote itself stand in for it" in served.err
    tfrnet("run", "--stream", files.stream, *where, "--state", tmp_path / "run")
    assert story(tmp_path / "served") == story(tmp_path / "run")
    assert tensors(tmp_path / "served") == tensors(tmp_path / "run")
