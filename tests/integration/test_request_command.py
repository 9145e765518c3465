"""`tfrnet request` with a service that is busy, breaks off, or is none at all."""

from __future__ import annotations

import http.server
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import tiny
from tests.integration.commands import Tfrnet, write_lines
from tfrnet.serve import client

REQUESTS = [request.to_dict() for request in tiny.requests(3, size=2)]
Answer = Callable[[http.server.BaseHTTPRequestHandler], None]


def shown(name: str, state: str = "pending") -> dict[str, Any]:
    about = {"approval": "not_needed", "days_left": 3.0, "reason": "", "outcome": None}
    return {"id": name, "state": state} | about


def say(
    handler: http.server.BaseHTTPRequestHandler,
    body: object,
    status: int = 200,
    **headers: str,
) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(data)


@contextmanager
def answering(answer: Answer) -> Iterator[str]:
    """Serve every call by one function, and yield the address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            self.sent = json.loads(self.rfile.read(length) or "null")
            answer(self)

        def log_message(self, *arguments: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the client waited, instead of waiting."""
    waited: list[float] = []
    monkeypatch.setattr(client.time, "sleep", waited.append)
    return waited


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "requests.jsonl", REQUESTS)


# Sending


def test_too_many_calls_are_sent_again_when_the_service_says(
    tfrnet: Tfrnet, stream: Path, waits: list[float]
) -> None:
    calls = 0

    def answer(handler: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            say(handler, {"detail": "too many calls"}, 429, Retry_After="7")
        else:
            say(handler, shown(handler.sent["id"]), 202)

    with answering(answer) as url:
        result = tfrnet("request", "submit", stream, "--url", url, "--json")
    assert result.code == 0
    assert [each["id"] for each in result.json["requests"]] == [each["id"] for each in REQUESTS]
    assert (calls, waits) == (4, [7])


@pytest.mark.parametrize("wait", ["20", "61", "", "tomorrow"])
def test_what_was_sent_is_said_if_the_service_takes_no_more(
    tfrnet: Tfrnet, stream: Path, waits: list[float], wait: str
) -> None:
    def answer(handler: Any) -> None:
        if handler.sent["id"] == REQUESTS[2]["id"]:
            say(handler, {"detail": "too many calls"}, 429, Retry_After=wait)
        else:
            say(handler, shown(handler.sent["id"]), 202)

    with answering(answer) as url:
        result = tfrnet("request", "submit", stream, "--url", url)
        as_json = tfrnet("request", "submit", stream, "--url", url, "--json")
    assert result.code == 2
    assert [line.split(":")[0] for line in result.out.splitlines()] == ["request-0", "request-1"]
    assert result.error == (
        "too many calls (429); 2 of 3 requests were sent, those before 'request-2'; submit the "
        "file again to send the rest"
    )
    assert [each["id"] for each in as_json.json["requests"]] == ["request-0", "request-1"]
    assert waits == ([20] * 6 if wait == "20" else [])


# Watching


def events(handler: Any, *names: str) -> None:
    """Send the events after the last that is known, as the service does, and break off."""
    last = int(handler.headers.get("Last-Event-ID", 0))
    text = "".join(
        f"id: {number}\nevent: {name}\ndata: {json.dumps({'event': name})}\n\n"
        for number, name in enumerate(names, start=1)
        if number > last
    )
    say(handler, text.encode())


def test_a_stream_that_ends_early_goes_on_where_it_was(tfrnet: Tfrnet, waits: list[float]) -> None:
    seen = ["queued", "started", "completed"]
    told = 0

    def answer(handler: Any) -> None:
        nonlocal told
        if handler.path.endswith("/events"):
            told += 1
            events(handler, *seen[:told])
        else:
            say(handler, shown("a", "completed" if told == 3 else "in_progress"))

    with answering(answer) as url:
        result = tfrnet("request", "watch", "a", "--url", url)
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines() == [*seen, "a: completed"]
    assert len(waits) == 2


def test_a_stream_that_keeps_ending_early_is_no_success(tfrnet: Tfrnet, waits: list[float]) -> None:
    def answer(handler: Any) -> None:
        if handler.path.endswith("/events"):
            events(handler, "queued")
        else:
            say(handler, shown("a", "in_progress"))

    with answering(answer) as url:
        result = tfrnet("request", "watch", "a", "--url", url)
    assert result.code == 1
    assert result.out.splitlines() == ["queued"]
    assert "stops telling of request 'a', which has not ended" in result.error
    assert 1 < len(waits) < 20


# What is no service


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://localhost:80x", "cannot be reached: nonnumeric port: '80x'"),
        ("http://local host", "cannot be reached: URL can't contain control characters"),
        ("http://[::1", "--url must begin with http:// or https://"),
        ("http://localhost/é", "--url must begin with http:// or https://"),
    ],
)
def test_an_address_that_is_none_is_one_line(tfrnet: Tfrnet, url: str, message: str) -> None:
    result = tfrnet("request", "list", "--url", url)
    assert result.code == 2
    assert message in result.error


def test_a_port_that_speaks_another_protocol_is_one_line(tfrnet: Tfrnet) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def greet() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"SSH-2.0-OpenSSH_9\r\n")

        threading.Thread(target=greet, daemon=True).start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        result = tfrnet("request", "list", "--url", url)
    assert (result.code, result.error) == (2, f"{url} is not a tfrnet service")


@pytest.mark.parametrize(
    "body", [{"ok": True}, [], {"requests": 5, "next": None}, {"requests": [{}], "next": None}]
)
@pytest.mark.parametrize("command", [["list"], ["show", "a"], ["approve", "a"], ["watch", "a"]])
def test_another_service_that_answers_in_json_is_one_line(
    tfrnet: Tfrnet, body: object, command: list[str]
) -> None:
    def answer(handler: Any) -> None:
        stream = b"data: " + json.dumps(body).encode() + b"\n\n"
        say(handler, stream if handler.path.endswith("/events") else body)

    with answering(answer) as url:
        result = tfrnet("request", *command, "--url", url)
    assert (result.code, result.error) == (2, f"{url} is not a tfrnet service")


def test_an_answer_that_breaks_off_is_one_line(tfrnet: Tfrnet) -> None:
    with answering(lambda handler: say(handler, b"{", Content_Length="50")) as url:
        result = tfrnet("request", "show", "a", "--url", url)
    assert result.code == 2
    assert f"{url} cannot be reached" in result.error


def test_an_id_that_is_not_utf8_is_asked_for_and_not_found(tfrnet: Tfrnet) -> None:
    with answering(lambda handler: say(handler, {"detail": f"no {handler.path}"}, 404)) as url:
        result = tfrnet("request", "show", "\udcff", "--url", url)
    assert (result.code, result.error) == (2, "no /v1/requests/%3F (404)")
