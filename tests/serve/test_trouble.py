"""The service goes on when its disk, its queue or its state does not."""

from __future__ import annotations

import os
import socket
import sqlite3
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import tiny
from tests.serve.running import Running, primary, wait_until
from tests.states import story
from tfrnet.core.errors import InputError, StateError
from tfrnet.method_state import verify_state
from tfrnet.serve import worker
from tfrnet.serve.queue import Queue
from tfrnet.state import ledger

REQUESTS = tiny.requests(4, size=2)


def test_a_request_that_is_cancelled_at_the_last_moment(
    tmp_path: Path, tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the worker's choice of it and the beginning of the work."""
    real = Queue.begin

    def late(queue: Queue, name: str, lines: int) -> Any:
        if name == "request-0":
            queue.cancel(name, "somebody")
        return real(queue, name, lines)

    monkeypatch.setattr(Queue, "begin", late)
    with primary(tmp_path / "state", tokenizer) as running:
        for request in REQUESTS[:2]:
            running.submit(request)
        assert running.ended("request-0")["state"] == "cancelled"
        assert running.ended("request-1")["state"] == "completed"


def test_a_queue_that_cannot_be_written_for_a_while(
    tmp_path: Path, tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request is applied and only the queue does not know; it finds out, once."""
    monkeypatch.setattr(worker, "_FIRST_WAIT", 0.2)
    with primary(tmp_path / "state", tokenizer) as running:
        full = True
        real = Queue._move

        def move(queue: Queue, name: str, event: str, *rest: Any, **changes: Any) -> Any:
            if full and event == "completed":
                raise sqlite3.OperationalError("database or disk is full")
            return real(queue, name, event, *rest, **changes)

        monkeypatch.setattr(Queue, "_move", move)
        running.submit(REQUESTS[0])
        wait_until(lambda: running.client.get("/readyz").status_code == 503)
        assert running.show("request-0")["state"] == "in_progress"
        assert running.complete("Item").status_code == 200
        full = False
        done = running.ended("request-0")
        assert (done["state"], done["in_force"]) == ("completed", True)
        assert running.complete("Item").headers["x-tfrnet-generation"] == "1"
        wait_until(lambda: running.client.get("/readyz").status_code == 200)
        running.submit(REQUESTS[1])
        assert running.ended("request-1")["state"] == "completed"
    assert [entry["id"] for entry in story(tmp_path / "state")] == ["request-0", "request-1"]


def test_a_generation_that_completions_cannot_take_over_at_once(
    tmp_path: Path, tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request is not called completed before the answers are those of the new generation."""
    monkeypatch.setattr(worker, "_FIRST_WAIT", 0.2)
    with primary(tmp_path / "state", tokenizer) as running:
        engine = running.service.engine
        lane_for = engine._lane_for

        def short_of_memory(*arguments: object) -> None:
            raise MemoryError

        monkeypatch.setattr(engine, "_lane_for", short_of_memory)
        running.submit(REQUESTS[0])
        wait_until(lambda: running.client.get("/readyz").status_code == 503)
        assert running.show("request-0")["state"] == "in_progress"
        assert running.complete("Item").headers["x-tfrnet-generation"] == "0"
        monkeypatch.setattr(engine, "_lane_for", lane_for)
        assert running.ended("request-0")["state"] == "completed"
        assert running.complete("Item").headers["x-tfrnet-generation"] == "1"
    assert len(story(tmp_path / "state")) == 1


def test_what_cannot_be_queued_is_told_when_to_come_again(
    shared: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Queue, "_insert", full)
    answer = shared.submit(REQUESTS[2].to_dict() | {"id": "unlucky"})
    assert answer.status_code == 503
    assert answer.headers["retry-after"]
    assert "disk" not in answer.text


def test_a_state_that_is_changed_beside_the_service(
    tmp_path: Path, tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever takes the lock away could write too; nothing is written until it is back."""
    monkeypatch.setattr(worker, "_FIRST_WAIT", 0.2)
    state = tmp_path / "state"
    with primary(state, tokenizer) as running:
        (state / "lock").rename(state / "elsewhere")
        running.submit(REQUESTS[0])
        wait_until(lambda: running.client.get("/readyz").status_code == 503)
        assert str(tmp_path) not in running.client.get("/readyz").text
        assert running.complete("Item").headers["x-tfrnet-generation"] == "0"
        (state / "elsewhere").rename(state / "lock")
        assert running.ended("request-0")["state"] == "completed"
    assert all(check.passed for check in verify_state(state))


@pytest.mark.parametrize("end", ["cancelled", "failed"])
def test_a_service_is_ready_once_nothing_is_left_to_be_tried_again(
    tmp_path: Path, tokenizer, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    wait = 60.0 if end == "cancelled" else 0.2  # a cancellation is heard of at once
    monkeypatch.setattr(worker, "_FIRST_WAIT", wait)
    with primary(tmp_path / "state", tokenizer) as running:
        session, errors = running.service.primary.session, [StateError("no space left")]

        def forget(*arguments: object, **more: object) -> None:
            raise errors[0]

        monkeypatch.setattr(session, "forget", forget)
        running.submit(REQUESTS[0])
        wait_until(lambda: running.client.get("/readyz").status_code == 503)
        wait_until(lambda: running.show("request-0")["state"] == "pending")
        if end == "cancelled":
            assert running.client.post("/v1/requests/request-0/cancel").status_code == 200
        else:
            errors[0] = InputError("of no use")
        assert running.ended("request-0")["state"] == end
        wait_until(lambda: running.client.get("/readyz").status_code == 200)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_worker_that_has_died_is_told(
    tmp_path: Path, tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with primary(tmp_path / "state", tokenizer) as running:
        assert running.client.get("/readyz").status_code == 200

        def die(*arguments: object) -> None:
            raise SystemExit

        monkeypatch.setattr(running.service.primary.worker, "_work", die)
        running.submit(REQUESTS[0])
        wait_until(lambda: running.client.get("/readyz").status_code == 503)
        assert "started again" in running.client.get("/readyz").json()["detail"]
        assert running.complete("Item").status_code == 200


def test_a_finished_request_reads_the_end_of_the_ledger_only(
    tmp_path: Path, tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with primary(tmp_path / "state", tokenizer) as running:
        running.submit(REQUESTS[0])
        running.ended("request-0")

        def whole(*arguments: object) -> None:
            raise AssertionError("the whole ledger was read")

        monkeypatch.setattr(ledger, "read", whole)
        running.submit(REQUESTS[1])
        assert running.ended("request-1")["outcome"]["line"] == 3
        lines = running.client.get("/v1/history?after=1").json()
        assert [entry["id"] for entry in lines["entries"]] == ["request-0", "request-1"]


def test_a_stop_lets_answers_end(tmp_path: Path, tokenizer) -> None:
    with primary(tmp_path / "state", tokenizer) as running:
        body = {"prompt": "Item", "max_tokens": 110, "stream": True, "temperature": 0}
        with httpx.stream(
            "POST", f"{running.url}/v1/completions", json=body, timeout=60, trust_env=False
        ) as stream:
            lines = stream.iter_lines()
            next(lines)
            running.server.handle_exit(15, None)
            assert [line for line in lines if line][-1] == "data: [DONE]"
        running.thread.join(30)
        assert not running.thread.is_alive()


def test_a_stop_does_not_wait_for_who_is_still_sending(tmp_path: Path, tokenizer) -> None:
    with primary(tmp_path / "state", tokenizer) as running:
        host, port = running.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=20) as slow:
            slow.sendall(
                b"POST /v1/requests HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
            )
            # Once another one is answered, the service has seen the first.
            assert running.client.get("/v1/state").status_code == 200
            start = time.monotonic()
            running.stop()
            assert time.monotonic() - start < 8  # of 20 seconds of grace
            assert slow.recv(4096).startswith(b"HTTP/1.1 503")
        assert [line for line in running.log() if "error" in line] == []


def test_a_stop_lets_the_request_in_hand_end(
    tmp_path: Path, tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with primary(tmp_path / "state", tokenizer) as running:
        net = running.service.primary.session.unlearner
        arrived, go_on, real = threading.Event(), threading.Event(), net._losses

        def held(examples: Any) -> Any:
            arrived.set()
            assert go_on.wait(30)
            return real(examples)

        monkeypatch.setattr(net, "_losses", held)
        for request in REQUESTS[:2]:
            running.submit(request)
        assert arrived.wait(30)
        running.server.handle_exit(15, None)
        go_on.set()
        running.thread.join(30)
        assert not running.thread.is_alive()
    # The one in hand is applied, and no other was begun.
    assert [entry["id"] for entry in story(tmp_path / "state")] == ["request-0"]


@pytest.mark.slow
@pytest.mark.parametrize("what", ["ledger", "generation", "pointer"])
def test_a_state_that_somebody_tampers_with(
    tmp_path: Path, tokenizer, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Completions go on; requests wait until what is on the disk is sound again."""
    monkeypatch.setattr(worker, "_FIRST_WAIT", 0.2)
    monkeypatch.setattr(worker, "_LONGEST_WAIT", 0.4)
    state = tmp_path / "state"
    with primary(state, tokenizer) as running:
        running.submit(REQUESTS[0])
        running.ended("request-0")
        before = running.complete("Item").json()["choices"]
        path = {
            "ledger": state / "ledger.jsonl",
            "generation": max((state / "generations").glob("*.safetensors")),
            "pointer": state / "current.json",
        }[what]
        data = path.read_bytes()
        middle = len(data) // 2
        path.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
        found = running.client.get("/v1/verify")
        assert found.status_code == 200
        assert not found.json()["passed"]
        assert str(tmp_path) not in found.text
        assert running.client.get("/readyz").status_code == 503
        running.submit(REQUESTS[1])
        time.sleep(1)
        assert running.show("request-1")["state"] == "pending"
        assert running.complete("Item").json()["choices"] == before
        path.write_bytes(data)
        assert running.ended("request-1")["state"] == "completed"
        assert running.complete("Item").headers["x-tfrnet-generation"] == "2"
        assert running.client.get("/v1/verify").json()["passed"]
        assert running.client.get("/readyz").status_code == 200


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priorities of their own here")
def test_requests_give_way_to_completions(shared: Running) -> None:
    def priority(name: str) -> int:
        (thread,) = [each for each in threading.enumerate() if each.name == name]
        return os.getpriority(os.PRIO_PROCESS, thread.native_id or 0)

    assert priority("requests") > priority("completions") == os.getpriority(os.PRIO_PROCESS, 0)
