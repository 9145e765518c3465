"""Somebody tries to break the service, or to get words out of it."""

from __future__ import annotations

import json
import shutil
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import openai
import pytest

from tests import tiny
from tests.serve.running import Running, primary
from tfrnet.core.errors import StateError
from tfrnet.serve import server, webhooks
from tfrnet.serve.database import Database
from tfrnet.serve.service import ServiceOptions

REQUESTS = tiny.requests(4, size=2)
CHAT = [{"role": "user", "content": "Item 3 of the old box is"}]
SECRET = "Xylophon-Quetzalcoatl-8431"


def post(running: Running, path: str, body: str) -> Any:
    headers = {"Content-Type": "application/json"}
    return running.client.post(path, content=body.encode(errors="surrogatepass"), headers=headers)


def connected(running: Running) -> socket.socket:
    host, port = running.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=20)


# Odd values

ODD = (
    *("null", "true", "-1", "0", "1.5", "NaN", "-Infinity", "1e999", "1e-308", "9" * 30),
    *("9" * 5000, '""', '"\\u0000"', '"\\ud800"', '"x"', "[]", "[[]]", "{}", '{"a": {"b": []}}'),
)
FIELDS = {
    "/v1/completions": (
        *("prompt", "max_tokens", "temperature", "top_p", "n", "seed", "stop", "stream"),
        *("stream_options", "logprobs", "logit_bias", "model", "best_of", "presence_penalty"),
    ),
    "/v1/chat/completions": ("messages", "max_completion_tokens", "tools", "response_format"),
    "/v1/requests": ("id", "examples", "due", "callback_urls"),
    "/v1/rollback": ("to",),
}
WHOLE: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "Item", "max_tokens": 1},
    "/v1/chat/completions": {"messages": CHAT, "max_tokens": 1},
    "/v1/requests": {"id": "odd", "examples": [{"text": "never sent in this form"}]},
    "/v1/rollback": {"to": 0},
}


@pytest.mark.parametrize(
    "path",
    [
        *(
            pytest.param(path, marks=pytest.mark.slow)
            for path in sorted(FIELDS)
            if "/v1/r" not in path
        ),
        "/v1/requests",
        "/v1/rollback",
    ],
)
def test_odd_values_are_answered_and_the_service_goes_on(shared: Running, path: str) -> None:
    for field in FIELDS[path]:
        rest = {name: value for name, value in WHOLE[path].items() if name != field}
        for value in ODD:
            body = (
                f'{{"{field}": {value}, {json.dumps(rest)[1:]}'
                if rest
                else (f'{{"{field}": {value}}}')
            )
            answer = post(shared, path, body)
            assert answer.status_code in (200, 202, 400, 404, 409, 422), (body[:200], answer.text)
            if answer.status_code >= 400:
                assert answer.headers["content-type"] == "application/problem+json"
    assert shared.complete("Item").status_code == 200
    assert [
        line for line in shared.log() if line["event"] in ("failed", "completions failed")
    ] == []


def test_what_openai_clients_may_send(shared: Running) -> None:
    client = openai.OpenAI(base_url=f"{shared.url}/v1", api_key="none", max_retries=0)
    fine: list[dict[str, Any]] = [
        {"tools": [], "response_format": {"type": "text"}, "logit_bias": {}},
        {"frequency_penalty": 0, "presence_penalty": 0.0, "user": "me", "store": False},
        {"temperature": None, "top_p": None, "n": None, "stop": None, "max_tokens": None},
        {"metadata": {"a": "b"}, "parallel_tool_calls": False, "service_tier": "auto", "n": 2},
        {"modalities": ["text"], "max_completion_tokens": 2, "stop": ["a", "b"]},
    ]
    for fields in fine:
        given = {"max_tokens": 2} | fields
        answer = client.chat.completions.create(model="tiny", messages=CHAT, **given)
        assert len(answer.choices) == (fields.get("n") or 1)
    refused: list[dict[str, Any]] = [
        {"logit_bias": {"50256": -100}},
        {"frequency_penalty": 0.5},
        {"presence_penalty": -2},
        {"response_format": {"type": "json_object"}},
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"functions": [{"name": "f"}]},
        {"modalities": ["audio"]},
        {"stop": ["x"] * 17},
        {"stop": "x" * 201},
        {"max_tokens": -1},
    ]
    for fields in refused:
        with pytest.raises(openai.UnprocessableEntityError):
            client.chat.completions.create(model="tiny", messages=CHAT, **fields)


def test_a_temperature_next_to_nothing_takes_the_likeliest(shared: Running) -> None:
    greedy = shared.complete("Item 3").json()["choices"][0]["text"]
    for temperature in (1e-300, 1e-40, 1e-9):
        answer = shared.complete("Item 3", temperature=temperature, top_p=1e-300)
        assert answer.json()["choices"][0]["text"] == greedy


def test_ids_and_deadlines_that_would_be_in_the_way(shared: Running) -> None:
    examples = [REQUESTS[0].examples[0].to_dict()]
    for name in ("..", "a/../b", "a//b", "/a", "a/", "./a", "a\nb", " a", "a/cancel"):
        answer = shared.submit({"id": name, "examples": examples})
        assert answer.status_code == 422, name
    for due in ("9999-12-31T23:59:59-12:00", "9999-12-31T23:59:59.999999Z", "0001-01-01T00:00Z"):
        answer = shared.submit({"id": "due", "examples": examples}, due=due)
        assert answer.status_code == 422, due
    assert shared.client.get("/v1/requests").status_code == 200


# Words


def test_words_get_into_no_log_and_no_metric_by_a_side_door(shared: Running) -> None:
    client = shared.client
    client.get(f"/v1/requests/{SECRET}")
    client.get(f"/{SECRET}")
    client.get(f"/v1/requests?state={SECRET}")
    client.get("/v1/state", headers={"Authorization": f"Bearer {SECRET}", SECRET: SECRET})
    client.request(SECRET, "/v1/state")
    client.post("/v1/requests", content=SECRET)
    client.post("/v1/requests", data={SECRET: SECRET})
    post(shared, "/v1/requests", f'{{"id": "x", "examples": [{{"text": "{SECRET}"')
    post(shared, "/v1/completions", json.dumps({"prompt": SECRET * 50, "max_tokens": 500}))
    post(shared, "/v1/completions", json.dumps({"prompt": "x", "model": SECRET}))
    shared.complete(SECRET, 2, stop=[SECRET], user=SECRET)
    with connected(shared) as raw:
        raw.sendall(f"{SECRET}\r\n{SECRET}\r\n\r\n".encode())
        raw.recv(4096)
    assert SECRET not in shared.said.getvalue()
    assert SECRET not in client.get("/metrics").text


def test_words_that_a_killed_process_left_are_gone_once_the_queue_is_opened(tmp_path: Path) -> None:
    words = (SECRET * 500).encode()  # more than a page of the file
    database = Database(tmp_path / "one" / "queue.sqlite")
    values = ("a", "pending", "", "", "", words, 1, 0, 0, "[]", "")
    with database.transaction() as connection:
        connection.execute(
            "INSERT INTO requests (id, state, approval, body_digest, digest, words, examples, "
            f"received, due, callbacks, submitted_by) VALUES ({', '.join('?' * len(values))})",
            values,
        )
    with database.transaction() as connection:
        connection.execute("UPDATE requests SET words = NULL")
    shutil.copytree(tmp_path / "one", tmp_path / "killed")  # before anything is tidied up
    database.close()

    def left() -> list[str]:
        files = (tmp_path / "killed").iterdir()
        return [path.name for path in files if SECRET.encode() in path.read_bytes()]

    assert left()
    Database(tmp_path / "killed" / "queue.sqlite").close()
    assert left() == []


# Pages from elsewhere


def test_a_page_from_elsewhere_cannot_act_through_a_browser(tmp_path: Path, tokenizer) -> None:
    """Such calls need no body, so that a browser sends them without asking us first."""
    with primary(tmp_path / "state", tokenizer, ServiceOptions(approve=True)) as running:
        running.submit(REQUESTS[0])
        place = "/v1/requests/request-0/cancel"
        elsewhere = "https://evil.example", "null", "http://localhost.evil.example"
        for origin in (*elsewhere, "http://localhost:9"):
            answer = running.client.post(place, headers={"Origin": origin})
            assert answer.status_code == 403
        # No content type at all, as of a blob.
        blob = running.client.build_request("POST", "/v1/rollback", content=b'{"to": 0}')
        blob.headers.pop("content-type", None)
        assert running.client.send(blob).status_code == 422
        answer = running.client.post(place, headers={"Origin": running.url})
        assert answer.json()["state"] == "cancelled"


# Slow clients


def test_heads_that_come_byte_by_byte_are_given_up(
    shared: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_HEAD_SECONDS", 0.5)
    with connected(shared) as slow:
        start = time.monotonic()
        with suppress(OSError):
            for byte in b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 1000:
                slow.sendall(bytes([byte]))
                time.sleep(0.02)
        assert time.monotonic() - start < 15
    assert shared.client.get("/healthz").status_code == 200


def test_a_client_that_does_not_read_is_cut_off(
    shared: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_UNREAD_SECONDS", 0.3)
    asked = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connected(shared) as greedy, pytest.raises((BrokenPipeError, ConnectionError)):
        end = time.monotonic() + 20
        while time.monotonic() < end:  # far more than all buffers on the way hold
            greedy.sendall(asked * 50)
            time.sleep(0.05)
    assert shared.client.get("/healthz").status_code == 200


def _dripping(stop: threading.Event) -> tuple[int, Callable[[], None]]:
    """Listen on a port and answer a byte at a time, for ever."""
    listening = socket.create_server(("127.0.0.1", 0))

    def drip() -> None:
        connection, _ = listening.accept()
        with connection, suppress(OSError):
            while not stop.wait(0.05):
                connection.sendall(b"X")

    thread = threading.Thread(target=drip)
    thread.start()
    return listening.getsockname()[1], thread.join


def test_a_webhook_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "_SECONDS", 0.4)
    stop = threading.Event()
    port, join = _dripping(stop)
    start = time.monotonic()
    try:
        addresses = webhooks.Addresses(("127.0.0.1",))
        with pytest.raises((OSError, webhooks.http.client.HTTPException)):
            webhooks.post(addresses, f"http://127.0.0.1:{port}/", b"{}", b"secret")
        assert time.monotonic() - start < 10
    finally:
        stop.set()
        join()


def test_a_queue_belongs_to_one_process(tmp_path: Path) -> None:
    first = Database(tmp_path / "queue.sqlite")
    with pytest.raises(StateError, match="in use by this process"):
        Database(tmp_path / "queue.sqlite")
    first.close()
    Database(tmp_path / "queue.sqlite").close()
