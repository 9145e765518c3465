"""One whole request on the default model: sent, watched, compared, certified, rolled back."""

from __future__ import annotations

import io
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.serve.running import Running, serving
from tfrnet.data.requests import Request
from tfrnet.demo.corpus import load_facts, split
from tfrnet.models.load import LoadedModel
from tfrnet.serve.client import Client
from tfrnet.serve.log import Log
from tfrnet.serve.service import ServiceOptions, open_primary
from tfrnet.session import Session
from tfrnet.state.certificate import check_certificate, read_certificate


def asked(running: Running, prompt: str, model: str) -> tuple[str, list[float], str]:
    """Return a greedy answer, its log-probabilities and the generation that gave it."""
    answer = running.complete(prompt, 6, model=model, logprobs=0)
    (choice,) = answer.json()["choices"]
    logprobs = choice["logprobs"]["token_logprobs"]
    return choice["text"], logprobs, answer.headers["x-tfrnet-generation"]


@pytest.mark.real
@pytest.mark.slow
def test_a_whole_request_on_the_default_model(
    real: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFRNET_KEY", str(tmp_path / "key.pem"))
    parts = split(load_facts(), "capitals")
    retain = [fact.example() for fact in parts.retain]
    request = Request(parts.requests[0].id, parts.requests[0].examples[:2])
    prompt, answer = request.examples[0].prompt, request.examples[0].answer
    session = Session(*real, tmp_path / "state", retain, model_name="smollm2-135m")
    said = io.StringIO()
    service = open_primary(session, ServiceOptions(grace=60.0), Log(said))
    with serving(service, said) as running:
        name = service.name
        before = asked(running, prompt, name)
        assert before[2] == "0"

        client = Client(running.url, seconds=600)
        client.submit(request.to_dict())
        events: list[dict[str, Any]] = []
        during: list[tuple[str, list[float], str]] = []

        def ask() -> None:
            while "completed" not in [event["event"] for event in events]:
                during.append(asked(running, prompt, name))
                time.sleep(1)

        asking = threading.Thread(target=ask)
        asking.start()
        for event in client.watch(request.id):
            events.append(event)
        asking.join()
        names = [event["event"] for event in events]
        assert (names[0], names[-1]) == ("queued", "completed"), events
        assert len({event["stage"] for event in events if event["event"] == "progress"}) > 2
        # Until the commit every answer is that of before.
        assert {text for text, _, generation in during if generation == "0"} == {before[0]}

        done = running.show(request.id)
        assert done["in_force"]
        assert done["outcome"]["forget_loss_after"] > done["outcome"]["forget_loss_before"] + 1
        after = asked(running, prompt, name)
        assert after[2] == "1"
        assert after[0] != before[0] or after[1] != before[1]
        untouched = asked(running, prompt, f"{name}@0")
        assert untouched[0] == before[0]
        assert untouched[1] == pytest.approx(before[1], abs=1e-4)

        place = f"/v1/requests/{request.id}/certificate"
        (tmp_path / "certificate.json").write_bytes(running.client.get(place).content)
        certificate = read_certificate(tmp_path / "certificate.json")
        checks = check_certificate(certificate, None, session.store.entries)
        assert all(check.passed for check in checks)
        assert answer.strip() not in (tmp_path / "certificate.json").read_text()

        assert client.verify()["passed"]
        assert client.rollback(0)["generation"] == 2
        back = asked(running, prompt, name)
        assert (back[0], back[2]) == (before[0], "2")
        assert back[1] == pytest.approx(before[1], abs=1e-4)
        assert running.show(request.id)["in_force"] is False
        assert running.client.get(place).status_code == 409
    assert answer.strip() not in said.getvalue()
