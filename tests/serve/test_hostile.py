"""A hostile client: what is no HTTP, hoarded streams, tricks with numbers, names and ids."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import tiny
from tests.serve.running import Running, primary
from tfrnet.core.errors import StateError
from tfrnet.serve.gate import Limits
from tfrnet.serve.service import ServiceOptions
from tfrnet.serve.tokens import TokenFile, add_token, revoke_token

REQUEST = tiny.requests(1, size=2)[0]
HEAD = b"Host: localhost\r\nConnection: close\r\n"


def said_to(running: Running, sent: bytes) -> bytes:
    """Send bytes and return all that is answered."""
    host, port = running.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(sent)
        return b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 TLS\r\n\r\n",
        b"GET /v1/requests/\xff HTTP/1.1\r\n" + HEAD + b"\r\n",
        b"GET /v1/state HTTP/1.1\r\nHost: evil\r\n" + HEAD + b"\r\n",
        b"POST /v1/completions HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
        b"POST /v1/completions HTTP/1.1\r\n" + HEAD + b"Content-Length: -5\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_not_http_gets_a_problem_document(shared: Running, sent: bytes) -> None:
    head, _, body = said_to(shared, sent).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"application/problem+json" in head
    assert json.loads(body)["status"] == 400
    assert shared.client.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/requests?after=9223372036854775808", 422),
        ("GET", "/v1/history?after=9223372036854775808", 422),
        ("GET", "/v1/history?after=9223372036854775807", 200),
        ("GET", "/v1/requests/%00", 404),
        ("GET", "/v1/requests/%ff%fe", 404),
        ("GET", "/v1/requests/..%2f..%2fetc/certificate", 404),
        ("GET", "/%2e%2e/healthz", 404),
        ("GET", "//evil.example/healthz", 404),
        ("GET", "/healthz/", 404),  # no redirect to what the caller says is our name
        ("GET", "http://evil.example/v1/state", 404),
        ("OPTIONS", "*", 404),
        ("TRACE", "/v1/state", 405),
    ],
)
def test_odd_addresses_are_problems(shared: Running, method: str, path: str, status: int) -> None:
    answer = said_to(shared, f"{method} {path} HTTP/1.1\r\n".encode() + HEAD + b"\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert int(head.split()[1]) == status, answer
    assert status == 200 or json.loads(body)["status"] == status


def test_an_event_number_beyond_all_bounds(shared: Running) -> None:
    shared.submit(REQUEST.to_dict() | {"id": "numbered"})
    for number in ("9" * 30, "-1", "x"):
        answer = shared.client.get(
            "/v1/requests/numbered/events", headers={"Last-Event-ID": number}
        )
        assert answer.status_code == 422
    assert shared.ended("numbered")


@pytest.mark.slow
def test_a_body_in_tiny_pieces_does_not_hold_up_the_others(shared: Running) -> None:
    """Each piece costs time; taken all at once, nobody else would be answered for seconds."""
    pieces = b"POST /v1/completions HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    pieces += b"1\r\nx\r\n" * 150_000 + b"0\r\n\r\n"
    answers: list[bytes] = []
    sender = threading.Thread(target=lambda: answers.append(said_to(shared, pieces)))
    sender.start()
    served = 0
    while sender.is_alive():
        assert shared.client.get("/healthz").status_code == 200
        served += 1
    assert answers[0].startswith(b"HTTP/1.1 422")
    assert served > 5  # one or two if it is not cut up


@pytest.mark.slow
def test_one_caller_cannot_take_all_places(tmp_path: Path, tokenizer) -> None:
    path = tmp_path / "tokens.json"
    hoarder, other = (add_token(path, name, ["read"], None) for name in ("hoarder", "other"))
    options = ServiceOptions(tokens=path, limits=Limits(under_way=8, of_one=5))
    with primary(tmp_path / "state", tokenizer, options) as running, ExitStack() as streams:

        def state(secret: str) -> httpx.Response:
            return running.client.get("/v1/state", headers={"Authorization": f"Bearer {secret}"})

        for _ in range(5):
            stream = httpx.stream(
                "GET",
                f"{running.url}/v1/events",
                headers={"Authorization": f"Bearer {hoarder}"},
                trust_env=False,
            )
            assert streams.enter_context(stream).status_code == 200
        refused = state(hoarder)
        assert refused.status_code == 503
        assert refused.headers["retry-after"]
        assert state(other).status_code == 200
        streams.close()
        for _ in range(200):
            if state(hoarder).status_code == 200:
                break
        else:
            pytest.fail("places are not given back")


def test_tokens_that_were_away_for_a_while_are_good_again(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    secret = add_token(path, "me", ["read"], None)
    tokens = TokenFile(path)
    assert tokens.find(secret)
    path.rename(tmp_path / "elsewhere")
    assert tokens.find(secret) is None
    (tmp_path / "elsewhere").rename(path)
    assert tokens.find(secret)


def test_a_token_that_is_revoked_hears_no_more(tmp_path: Path, tokenizer) -> None:
    """Its stream was opened before."""
    path = tmp_path / "tokens.json"
    admin, gone = (add_token(path, name, ["admin"], None) for name in ("admin", "gone"))
    options = ServiceOptions(tokens=path, approve=True)
    with (
        primary(tmp_path / "state", tokenizer, options, token=admin) as running,
        httpx.stream(
            "GET",
            f"{running.url}/v1/events",
            headers={"Authorization": f"Bearer {gone}"},
            trust_env=False,
            timeout=60,
        ) as stream,
    ):
        lines = stream.iter_lines()
        assert next(lines) == "event: hello"
        revoke_token(path, "gone")
        assert running.submit(REQUEST.to_dict() | {"id": "not-for-them"}).status_code == 202
        assert "not-for-them" not in "".join(lines)  # and it ends


# Requests that come again


@pytest.mark.slow
def test_who_sends_a_request_again_cannot_approve_it(tmp_path: Path, tokenizer) -> None:
    path = tmp_path / "tokens.json"
    scopes = ["submit", "approve"]
    first, second = (add_token(path, name, scopes, None) for name in ("first", "second"))
    options = ServiceOptions(tokens=path, approve=True)
    with primary(tmp_path / "state", tokenizer, options) as running:

        def post(secret: str, place: str, body: object = None) -> httpx.Response:
            headers = {"Authorization": f"Bearer {secret}"}
            return running.client.post(f"/v1/requests{place}", json=body, headers=headers)

        body = REQUEST.to_dict()
        assert post(first, "", body).status_code == 202
        assert post(first, "/request-0/cancel").status_code == 200
        again = post(second, "", body)
        assert (again.status_code, again.json()["submitted_by"]) == (202, "second")
        assert again.json()["decided_by"] == ""
        assert post(second, "/request-0/approve").status_code == 409
        assert post(first, "/request-0/approve").status_code == 200


def test_who_sends_it_again_while_approving_it_has_not_approved_it(
    tmp_path: Path, tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tokens.json"
    first, second = (
        {"Authorization": f"Bearer {add_token(path, name, ['submit', 'approve'], None)}"}
        for name in ("first", "second")
    )
    options = ServiceOptions(tokens=path, approve=True)
    with primary(tmp_path / "state", tokenizer, options) as running:
        client, queue = running.client, running.service.primary.queue
        body, place = REQUEST.to_dict(), "/v1/requests/request-0"
        assert client.post("/v1/requests", json=body, headers=first).status_code == 202
        real = queue._move

        def overtaken(name: str, event: str, *rest: Any, **changes: Any) -> Any:
            monkeypatch.setattr(queue, "_move", real)
            assert client.post(f"{place}/cancel", headers=second).status_code == 200
            assert client.post("/v1/requests", json=body, headers=second).status_code == 202
            return real(name, event, *rest, **changes)

        monkeypatch.setattr(queue, "_move", overtaken)
        answer = client.post(f"{place}/approve", headers=second)
        assert (answer.status_code, "somebody other" in answer.text) == (409, True)
        assert client.post(f"{place}/approve", headers=first).status_code == 200


def test_what_comes_again_finds_a_full_queue_full(tmp_path: Path, tokenizer) -> None:
    options = ServiceOptions(approve=True, most_queued=1)
    with primary(tmp_path / "state", tokenizer, options) as running:
        running.submit(REQUEST)
        running.client.post("/v1/requests/request-0/cancel")
        assert running.submit(REQUEST.to_dict() | {"id": "other"}).status_code == 202
        assert running.submit(REQUEST).status_code == 503


def test_a_rollback_that_comes_too_late_is_told_so(tmp_path: Path, tokenizer) -> None:
    with primary(tmp_path / "state", tokenizer) as running:
        worker = running.service.primary.worker
        worker.stop(5)
        with pytest.raises(StateError, match="is stopping"):
            worker.rollback(0).result(5)
