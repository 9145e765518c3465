"""Bodies that two readers could understand differently are refused, and so are loose values."""

from __future__ import annotations

import json
import time

import httpx
import pytest

from tests import tiny
from tests.serve.running import Running

REQUEST = tiny.requests(1, size=2)[0]
SECRET = "Quintessa"
EXAMPLE = f'{{"prompt": "{SECRET} is", "answer": "red"}}'


def post(running: Running, path: str, body: str) -> httpx.Response:
    headers = {"Content-Type": "application/json"}
    return running.client.post(path, content=body, headers=headers)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/requests", f'{{"id": "x", "examples": [{EXAMPLE}], "examples": [{EXAMPLE}]}}'),
        ("/v1/requests", f'{{"id": "x", "examples": [{{"text": "a", "text": "{SECRET}"}}]}}'),
        ("/v1/requests", f'{{"id": "x", "{SECRET}": 1, "{SECRET}": 2}}'),
        ("/v1/requests/x/deny", '{"reason": "a", "reason": "b"}'),
        ("/v1/rollback", '{"to": 5, "to": 0}'),
        ("/v1/completions", '{"prompt": "a", "prompt": "b"}'),
        ("/v1/chat/completions", '{"messages": [], "messages": []}'),
    ],
)
def test_a_key_that_comes_twice_is_refused(shared: Running, path: str, body: str) -> None:
    """The first `examples` would be dropped without a word."""
    answer = post(shared, path, body)
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"] == "an object in the body has a key twice"
    assert SECRET not in answer.text + shared.said.getvalue()
    assert shared.client.get("/v1/requests/x").status_code == 404


@pytest.mark.parametrize("text", ["NaN", "-Infinity", "9" * 5000])
def test_numbers_that_are_not_json_are_refused(shared: Running, text: str) -> None:
    assert post(shared, "/v1/rollback", f'{{"to": {text}}}').status_code == 400


@pytest.mark.parametrize("to", [True, False, "0", 0.0, 0.5, None, -1])
def test_a_rollback_takes_a_whole_number_only(shared: Running, to: object) -> None:
    before = shared.client.get("/v1/state").json()["generation"]
    assert post(shared, "/v1/rollback", json.dumps({"to": to})).status_code == 422
    assert shared.client.get("/v1/state").json()["generation"] == before


TOMORROW = int(time.time()) + 86_400


@pytest.mark.parametrize(
    "due",
    [TOMORROW, float(TOMORROW), str(TOMORROW), f"{TOMORROW * 1000}", True, [], ""],
    ids=["number", "float", "digits", "milliseconds", "true", "list", "empty"],
)
def test_a_deadline_is_a_date(shared: Running, due: object) -> None:
    answer = shared.submit(REQUEST.to_dict() | {"id": "dated"}, due=due)
    assert answer.status_code == 422
    assert "as in 2026-11-03T17:00:00Z" in answer.json()["detail"]
