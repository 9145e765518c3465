"""Deletion requests over HTTP: their states, their words, and what comes of them."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from tests import tiny
from tests.serve.running import Running, make_session, primary, wait_until
from tests.states import story, tensors
from tfrnet.method_state import verify_state
from tfrnet.serve.news import News
from tfrnet.serve.queue import Event
from tfrnet.serve.routes.requests import _way
from tfrnet.serve.service import ServiceOptions
from tfrnet.serve.worker import Worker

REQUESTS = tiny.requests(8, size=2)


def renamed(request, name: str) -> dict:
    return request.to_dict() | {"id": name}


def test_a_request_is_accepted_worked_out_and_in_force(shared: Running) -> None:
    answer = shared.submit(REQUESTS[0])
    assert answer.status_code == 202
    assert answer.headers["location"] == "/v1/requests/request-0"
    assert answer.json()["state"] in ("pending", "in_progress")
    done = shared.ended("request-0")
    assert (done["state"], done["in_force"]) == ("completed", True)
    assert done["outcome"]["generation"] == shared.service.engine.generation
    assert done["outcome"]["guard_loss_after"] > 0
    assert len(done["outcome"]["hash"]) == 64
    assert 29 < done["days_left"] < 31


def test_a_stream_ends_in_the_masks_of_a_session(tmp_path: Path, tokenizer) -> None:
    with primary(tmp_path / "served", tokenizer) as running:
        for request in REQUESTS[:4]:
            assert running.submit(request).status_code == 202
        for request in REQUESTS[:4]:
            running.ended(request.id)
    with make_session(tmp_path / "run", tokenizer) as session:
        outcomes = list(session.run(REQUESTS[:4]))
    assert len(outcomes) == 4
    assert tensors(tmp_path / "served") == tensors(tmp_path / "run")
    assert story(tmp_path / "served") == story(tmp_path / "run")
    assert all(check.passed for check in verify_state(tmp_path / "served"))


def test_the_same_again_gives_the_same_and_another_content_a_conflict(shared: Running) -> None:
    body = renamed(REQUESTS[1], "twice")
    first = shared.submit(body)
    again = shared.submit(body)
    assert (first.status_code, again.status_code) == (202, 200)
    done = shared.ended("twice")
    assert shared.submit(body).json()["outcome"] == done["outcome"]
    other = shared.submit(renamed(REQUESTS[2], "twice"))
    assert other.status_code == 409
    assert other.headers["content-type"] == "application/problem+json"
    assert [e["id"] for e in story(shared.state)].count("twice") == 1


def test_many_threads_send_the_same_id_and_it_is_done_once(shared: Running) -> None:
    body = renamed(REQUESTS[3], "crowd")
    codes: list[int] = []
    threads = [
        threading.Thread(target=lambda: codes.append(shared.submit(body).status_code))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == [200] * 7 + [202]
    shared.ended("crowd")
    assert [e["id"] for e in story(shared.state)].count("crowd") == 1


def test_an_id_that_the_ledger_knows_with_other_words_is_a_conflict(
    tmp_path: Path, tokenizer
) -> None:
    with make_session(tmp_path / "state", tokenizer) as session:
        session.forget(REQUESTS[0])
    with primary(tmp_path / "state", tokenizer) as running:
        assert running.submit(renamed(REQUESTS[1], "request-0")).status_code == 409
        assert running.submit(REQUESTS[0]).status_code == 202
        known = running.ended("request-0")
        assert (known["state"], known["outcome"]["line"]) == ("completed", 2)
    assert len(story(tmp_path / "state")) == 1


def test_what_the_guard_refuses_is_rejected_and_nothing_changes(tmp_path: Path, tokenizer) -> None:
    tight = ("steps=1", "guard_examples=4", "retain_examples=6", "backtracks=0", "guard_relative=0")
    with primary(tmp_path / "state", tokenizer, settings=tight) as running:
        states = {}
        for request in REQUESTS[:5]:
            running.submit(request)
            states[request.id] = running.ended(request.id)
        rejected = [name for name, shown in states.items() if shown["state"] == "rejected"]
        assert rejected
        assert "limit" in states[rejected[0]]["reason"]
        accepted = sum(shown["state"] == "completed" for shown in states.values())
        assert running.client.get("/v1/state").json()["generation"] == accepted


def test_a_slash_in_an_id(shared: Running) -> None:
    answer = shared.submit(renamed(REQUESTS[4], "2026-11-03/17"))
    assert answer.headers["location"] == "/v1/requests/2026-11-03/17"
    assert shared.ended("2026-11-03/17")["state"] == "completed"
    assert shared.submit(renamed(REQUESTS[4], "a/approve")).status_code == 422


def test_pages_and_filters(tmp_path: Path, tokenizer) -> None:
    with primary(tmp_path / "state", tokenizer, ServiceOptions(approve=True)) as running:
        for number in range(5):
            running.submit(renamed(REQUESTS[0], f"r{number}"))
        running.client.post("/v1/requests/r2/cancel")
        first = running.client.get("/v1/requests?limit=3").json()
        rest = running.client.get(f"/v1/requests?limit=3&after={first['next']}").json()
        assert [r["id"] for r in first["requests"] + rest["requests"]] == [
            "r0",
            "r1",
            "r2",
            "r3",
            "r4",
        ]
        assert rest["next"] is None
        cancelled = running.client.get("/v1/requests?state=cancelled").json()["requests"]
        assert [r["id"] for r in cancelled] == ["r2"]
        assert running.show("r3")["ahead"] == 2
        assert running.client.get("/v1/requests?state=nonsense").status_code == 422


def test_approval_denial_and_cancelling(tmp_path: Path, tokenizer) -> None:
    with primary(tmp_path / "state", tokenizer, ServiceOptions(approve=True)) as running:
        for request in REQUESTS[:3]:
            assert running.submit(request).json()["approval"] == "waiting"
        denied = running.client.post("/v1/requests/request-0/deny", json={"reason": "no right"})
        assert denied.json()["state"] == "cancelled"
        assert denied.json()["reason"] == "no right"
        assert running.client.post("/v1/requests/request-1/approve").json()["approval"] == "given"
        assert running.ended("request-1")["state"] == "completed"
        # Without approval nothing was applied before it.
        assert running.client.get("/v1/state").json()["generation"] == 1
        assert running.client.post("/v1/requests/request-1/approve").status_code == 409
        assert running.client.post("/v1/requests/request-1/cancel").status_code == 409
        assert running.client.post("/v1/requests/request-2/cancel").json()["state"] == "cancelled"
        # It waits for nothing any more.
        again = running.client.post("/v1/requests/request-2/cancel")
        assert again.status_code == 409
        assert again.json()["detail"] == "the request is cancelled, so this cannot be done now"
        assert running.client.post("/v1/requests/none/cancel").status_code == 404
        assert [e["id"] for e in story(tmp_path / "state")] == ["request-1"]


def test_what_waits_keeps_the_rule_that_it_came_under(
    tmp_path: Path, tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service that asks for approval from now on does not hold what came before."""
    monkeypatch.setattr(Worker, "_may_work", lambda worker: False)
    with primary(tmp_path / "state", tokenizer) as running:
        running.submit(REQUESTS[0])
    monkeypatch.undo()
    with primary(tmp_path / "state", tokenizer, ServiceOptions(approve=True)) as running:
        assert running.submit(REQUESTS[1]).json()["approval"] == "waiting"
        assert running.ended("request-0")["approval"] == "not_needed"
    with primary(tmp_path / "state", tokenizer) as running:
        assert running.show("request-1")["approval"] == "waiting"


def test_a_rollback_undoes_and_the_same_request_may_come_again(tmp_path: Path, tokenizer) -> None:
    prompt = REQUESTS[0].examples[0].prompt
    with primary(tmp_path / "state", tokenizer) as running:
        before = running.complete(prompt)
        running.submit(REQUESTS[0])
        running.ended("request-0")
        assert running.complete(prompt).headers["x-tfrnet-generation"] == "1"
        assert running.client.post("/v1/rollback", json={"to": 7}).status_code == 409
        assert running.client.post("/v1/rollback", json={"to": 0}).json() == {"generation": 2}
        after = running.complete(prompt)
        assert after.headers["x-tfrnet-generation"] == "2"
        assert after.json()["choices"] == before.json()["choices"]
        assert running.show("request-0")["in_force"] is False
        assert running.submit(REQUESTS[0]).status_code == 202
        assert running.ended("request-0")["in_force"] is True
        history = running.client.get("/v1/history").json()["entries"]
        assert [e["kind"] for e in history] == ["created", "request", "rollback", "request"]
        checks = running.client.get("/v1/verify").json()
        assert checks["passed"]
        assert len(checks["checks"]) >= 5


def test_a_way_is_told_as_events(shared: Running) -> None:
    shared.submit(renamed(REQUESTS[5], "watched"))
    with shared.client.stream("GET", "/v1/requests/watched/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = list(stream.iter_lines())
    names = [line.removeprefix("event: ") for line in lines if line.startswith("event")]
    assert (names[0], names[1], names[-1]) == ("queued", "started", "completed")
    numbers = [line.removeprefix("id: ") for line in lines if line.startswith("id")]
    again = shared.client.get(
        "/v1/requests/watched/events", headers={"Last-Event-ID": numbers[0]}
    ).text
    assert "queued" not in again
    assert "completed" in again
    assert shared.client.get("/v1/requests/unknown/events").status_code == 404


@pytest.mark.parametrize("moment", ["before the events are read", "after"])
def test_the_end_of_a_way_is_told_whenever_it_comes(moment: str) -> None:
    """Also between two looks at the queue, of which the first found the request at work."""
    names, news, ended = ["queued", "started"], News(), []

    def end() -> None:
        if not ended:
            ended.append(True)
            news.tell({"event": "completed", "request": "x", "number": 3})

    def events(name: str, last: int) -> list[Event]:
        if moment != "after":
            end()
        told = [*names, "completed"] if ended else names
        if moment == "after":
            end()
        way = [Event(number, name, 0.0, each, {}) for number, each in enumerate(told, 1)]
        return way[last:]

    queue = SimpleNamespace(events=events, find=lambda _: SimpleNamespace(has_ended=bool(ended)))
    service: Any = SimpleNamespace(news=news, needed_primary=SimpleNamespace(queue=queue))

    async def heard() -> list[str]:
        return [text async for text in _way(service, "x", 0)]

    told = asyncio.run(asyncio.wait_for(heard(), 5))
    assert re.findall("^event: (.*)$", "".join(told), re.MULTILINE) == [*names, "completed"]


def test_a_way_of_more_events_than_a_page_ends_too(tmp_path: Path, tokenizer) -> None:
    """As of a request that was begun and put back while a disk stayed full."""
    with primary(tmp_path / "state", tokenizer, ServiceOptions(approve=True)) as running:
        running.submit(REQUESTS[0])
        queue = running.service.primary.queue
        with queue._database.transaction() as connection:
            for _ in range(600):
                queue._record(connection, "request-0", "started", {})
                queue._record(connection, "request-0", "put_back", {"why": "a full disk"})
        running.client.post("/v1/requests/request-0/cancel")
        way = running.client.get("/v1/requests/request-0/events", timeout=20).text
        names = re.findall("^event: (.*)$", way, re.MULTILINE)
        assert (len(names), names[-1]) == (1202, "cancelled")


def test_the_way_of_what_was_sent_again_goes_on(tmp_path: Path, tokenizer) -> None:
    with primary(tmp_path / "state", tokenizer, ServiceOptions(approve=True)) as running:
        running.submit(REQUESTS[0])
        running.client.post("/v1/requests/request-0/cancel")
        running.submit(REQUESTS[0])
        with running.client.stream("GET", "/v1/requests/request-0/events") as stream:
            lines = (line for line in stream.iter_lines() if line.startswith("event"))
            told = [next(lines) for _ in range(3)]
            assert told == ["event: queued", "event: cancelled", "event: queued"]
            running.client.post("/v1/requests/request-0/approve")
            assert list(lines)[-1] == "event: completed"


def test_deadlines(shared: Running) -> None:
    due = datetime.now(UTC) + timedelta(days=3)
    body = renamed(REQUESTS[6], "due") | {"due": due.isoformat()}
    assert 2.9 < shared.submit(body).json()["days_left"] <= 3
    past = (datetime.now(UTC) - timedelta(days=1)).isoformat()
    assert shared.submit(renamed(REQUESTS[6], "late"), due=past).status_code == 422


def test_a_deadline_that_has_passed_is_counted(tmp_path: Path, tokenizer) -> None:
    with primary(tmp_path / "state", tokenizer, ServiceOptions(approve=True)) as running:
        # Long enough for a busy machine to take the request in before it has passed.
        due = datetime.now(UTC) + timedelta(seconds=3)
        assert running.submit(REQUESTS[0], due=due.isoformat()).status_code == 202
        wait_until(lambda: running.client.get("/v1/state").json()["overdue"] == 1, 10)
        assert running.show("request-0")["days_left"] <= 0
        assert "tfrnet_requests_overdue 1.0" in running.client.get("/metrics").text
        running.client.post("/v1/requests/request-0/cancel")
        assert running.client.get("/v1/state").json()["overdue"] == 0


def test_what_cannot_be_applied_is_refused_at_once(shared: Running) -> None:
    kept = [tiny.examples(12)[3].to_dict()]
    overlap = shared.submit({"id": "kept", "examples": kept})
    assert overlap.status_code == 422
    assert "overlaps" in overlap.json()["detail"]
    long = shared.submit({"id": "long", "examples": [{"prompt": "a", "answer": "word " * 600}]})
    assert long.status_code == 422
    assert "tokens" in long.json()["detail"]
    assert shared.client.get("/v1/requests/long").status_code == 404


def test_a_full_queue_says_when_to_come_again(tmp_path: Path, tokenizer) -> None:
    options = ServiceOptions(approve=True, most_queued=2)
    with primary(tmp_path / "state", tokenizer, options) as running:
        codes = [running.submit(renamed(REQUESTS[0], f"r{i}")).status_code for i in range(3)]
        assert codes == [202, 202, 503]
        assert running.submit(renamed(REQUESTS[0], "r9")).headers["retry-after"]


# Words

SECRET = "Xylophon-Quetzalcoatl-8431"


def files_with(folder: Path, *parts: bytes) -> list[str]:
    found = [path for path in folder.rglob("*") if path.is_file()]
    return [p.name for p in found if any(part in p.read_bytes() for part in parts)]


def test_words_are_encrypted_while_they_wait_and_gone_afterwards(tmp_path: Path, tokenizer) -> None:
    body = {"id": "secret", "examples": [{"prompt": f"Who is {SECRET}?", "answer": SECRET}]}
    options = ServiceOptions(approve=True)
    with primary(tmp_path / "state", tokenizer, options) as running:
        for name in ("secret", "denied", "cancelled"):
            assert running.submit(body | {"id": name}).status_code == 202
        queue = running.service.primary.queue
        rows = queue._database.read("SELECT words FROM requests")
        hidden = [bytes(row["words"])[12:60] for row in rows]
        assert files_with(tmp_path, SECRET.encode()) == []
        assert files_with(tmp_path / "state-service", *hidden)
        assert queue.words(queue.find("secret")).examples[0].answer == SECRET
        running.client.post("/v1/requests/secret/approve")
        running.client.post("/v1/requests/denied/deny")
        running.client.post("/v1/requests/cancelled/cancel")
        running.ended("secret")
        # The pages that held them are written over right after the end.
        wait_until(lambda: not files_with(tmp_path / "state-service", *hidden))
        answers = [
            running.client.get(place).text
            for place in ("/v1/requests", "/v1/requests/secret", "/v1/history", "/metrics")
        ]
        assert not any(SECRET in text for text in answers)
        assert SECRET not in running.said.getvalue()
    assert files_with(tmp_path, SECRET.encode()) == []


@pytest.mark.parametrize(
    "body",
    [
        {"id": "x", "examples": [{"prompt": SECRET, SECRET: SECRET}]},
        {"id": "x", "examples": [{"prompt": SECRET, "answer": 5}]},
        {"id": "x", "examples": [{"text": SECRET, "answer": SECRET}]},
        {"id": "x", "examples": SECRET},
        {"id": "x", SECRET: 1, "examples": [{"text": SECRET}]},
        {"id": SECRET * 20, "examples": [{"text": SECRET}]},
        {"id": "x", "examples": [{"text": SECRET + "\ud800"}]},
        {"id": "x", "examples": [{"text": SECRET}], "callback_urls": [f"http://{SECRET}"]},
        {"id": "x", "examples": [{"text": SECRET}], "due": SECRET},
    ],
)
def test_no_error_repeats_what_was_sent(shared: Running, body: dict) -> None:
    answer = shared.client.post(
        "/v1/requests",
        content=json.dumps(body),
        headers={"Content-Type": "application/json"},
    )
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert SECRET not in answer.text
    assert SECRET not in shared.said.getvalue()


def test_an_error_in_the_work_fails_the_request_without_its_words(
    tmp_path: Path, tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with primary(tmp_path / "state", tokenizer) as running:

        def broken(*arguments: object) -> None:
            raise RuntimeError(f"cannot do {SECRET}")

        with monkeypatch.context() as patch:
            patch.setattr(running.service.primary.session.unlearner, "_propose", broken)
            running.submit({"id": "bad", "examples": [{"text": SECRET}]})
            failed = running.ended("bad")
        assert (failed["state"], failed["reason"]) == ("failed", "unexpected RuntimeError")
        assert SECRET not in running.said.getvalue()
        running.submit(REQUESTS[0])
        assert running.ended("request-0")["state"] == "completed"
        # What failed may be sent again.
        assert running.submit({"id": "bad", "examples": [{"text": SECRET}]}).status_code == 202
        assert running.ended("bad")["state"] in ("completed", "rejected")


def test_a_disk_that_is_full_for_a_while_delays_a_request(
    tmp_path: Path, tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tfrnet.core import files

    with primary(tmp_path / "state", tokenizer) as running:
        real = files.append

        def full(path: Path, data: bytes) -> None:
            raise OSError(28, "No space left on device", str(path))

        monkeypatch.setattr(files, "append", full)
        running.submit(REQUESTS[0])
        wait_until(lambda: running.client.get("/readyz").status_code == 503)
        answer = running.client.get("/readyz")
        assert str(tmp_path) not in answer.text
        assert running.complete("Item 1").status_code == 200
        monkeypatch.setattr(files, "append", real)
        assert running.ended("request-0")["state"] == "completed"
        assert running.client.get("/readyz").status_code == 200
    assert all(check.passed for check in verify_state(tmp_path / "state"))


def test_a_stopped_service_goes_on_where_it_was(tmp_path: Path, tokenizer) -> None:
    with primary(tmp_path / "state", tokenizer, ServiceOptions(approve=True)) as running:
        for request in REQUESTS[:3]:
            running.submit(request)
        running.client.post("/v1/requests/request-0/approve")
        running.ended("request-0")
    with primary(tmp_path / "state", tokenizer, ServiceOptions(approve=True)) as running:
        assert running.show("request-0")["state"] == "completed"
        assert running.show("request-1")["approval"] == "waiting"
        running.client.post("/v1/requests/request-1/approve")
        assert running.ended("request-1")["outcome"]["generation"] == 2


def test_a_stop_sends_listeners_home(tmp_path: Path, tokenizer) -> None:
    with primary(tmp_path / "state", tokenizer) as running:
        with httpx.stream("GET", f"{running.url}/v1/events", trust_env=False) as stream:
            lines = stream.iter_lines()
            assert next(lines) == "event: hello"
            start = time.monotonic()
            threading.Thread(target=running.server.handle_exit, args=(15, None)).start()
            list(lines)
        running.thread.join(20)
        assert time.monotonic() - start < 10
