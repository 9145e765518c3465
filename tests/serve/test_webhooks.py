"""Webhooks: addresses in disguise, and messages that outlast whatever goes wrong."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from urllib.parse import SplitResult

import pytest

from tests import tiny
from tests.serve.running import Running, primary, wait_until
from tests.serve.test_operations import Receiver
from tfrnet.serve import webhooks
from tfrnet.serve.database import Database
from tfrnet.serve.service import ServiceOptions
from tfrnet.serve.webhooks import Addresses, RefusedError

REQUESTS = tiny.requests(4, size=2)
LOCAL = ServiceOptions(webhook_hosts=("127.0.0.1",))


@pytest.mark.parametrize(
    "url",
    [
        *("https://127.1/", "https://2130706433/", "https://0x7f000001/", "https://0177.0.0.1/"),
        *("https://0/", "https://127.0.0.1./", "https://localhost./", "https://a.LOCALHOST/"),
        *("https://[::]/", "https://[::127.0.0.1]/", "https://[::ffff:0:127.0.0.1]/"),
        *("https://[::ffff:10.0.0.1]/", "https://[64:ff9b::7f00:1]/", "https://[2002:7f00:1::]/"),
        *("https://[fe80::1%25eth0]/", "https://[fec0::1]/", "https://[fd00::1]/"),
        *("https://100.64.0.1/", "https://224.0.0.1/", "https://255.255.255.255/"),
        *("https://①②⑦.⓪.⓪.①/", "https://example.com/ü", "https://example.com/a b"),
        *("https://example.com/\r\nX: y", "https://:secret@example.com/", "https://@example.com/"),
        *("https://example.com\\@127.0.0.1/", "https://[::1", "https://example.com:0/"),
    ],
)
def test_addresses_in_disguise_are_refused(url: str) -> None:
    with pytest.raises(RefusedError):
        Addresses().refuse(url)


@pytest.mark.parametrize(
    "url",
    [
        *("https://example.com/x?y=%20z", "https://xn--bcher-kva.example:8443/"),
        *("https://93.184.216.34/", "https://[2606:2800:220:1:248:1893:25c8:1946]/"),
    ],
)
def test_public_addresses_are_taken(url: str) -> None:
    assert Addresses().refuse(url).hostname


@pytest.mark.parametrize(
    "answer", ["127.0.0.1", "::1", "fe80::1%eth0", "64:ff9b::a00:1", "0.0.0.0"]
)
def test_a_name_for_a_private_address_is_not_asked(answer: str) -> None:
    addresses = Addresses(resolve=lambda host, port: ["93.184.216.34", answer])
    with pytest.raises(RefusedError):
        webhooks.post(addresses, "https://rebinding.example/", b"{}", b"secret")


def states(running: Running) -> list[str]:
    read = running.service.primary.queue._database.read
    return [row["state"] for row in read("SELECT state FROM deliveries ORDER BY number")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://[2606:4700::abcd]/x", "[2606:4700::abcd]"),
        ("http://[2606:4700::1111]/x", "[2606:4700::1111]"),
        ("http://[2606:4700::1111]:81/x", "[2606:4700::1111]:81"),
        ("http://example.com/x", "example.com"),
    ],
)
def test_whoever_is_named_by_an_address_is_told(url: str, host: str) -> None:
    class Given(Addresses):
        def connect(self, parts: SplitResult) -> socket.socket:
            return ours

    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        addresses = Given(allowed=["2606:4700::abcd", "2606:4700::1111", "example.com"])
        assert webhooks.post(addresses, url, b"{}", b"secret") == 200
        assert f"\r\nHost: {host}\r\n" in theirs.recv(10_000).decode()


def test_a_message_that_is_owed_outlasts_a_restart(tmp_path: Path, tokenizer) -> None:
    """Nobody listens at first; the next process tries again."""
    receiver = Receiver([500])
    with primary(tmp_path / "state", tokenizer, LOCAL) as running:
        running.submit(REQUESTS[0], callback_urls=[receiver.url])
        running.ended("request-0")
        wait_until(lambda: len(receiver.got) == 1)
    with primary(tmp_path / "state", tokenizer, LOCAL) as running:
        wait_until(lambda: states(running) == ["delivered"])
    receiver.server.shutdown()
    assert [json.loads(body)["state"] for _, body in receiver.got] == ["completed"] * 2


@pytest.mark.slow
def test_every_end_is_told(tmp_path: Path, tokenizer) -> None:
    receiver = Receiver([])
    options = ServiceOptions(webhook_hosts=("127.0.0.1",), approve=True)
    with primary(tmp_path / "state", tokenizer, options) as running:
        for request in REQUESTS[:2]:
            running.submit(request, callback_urls=[receiver.url])
        running.client.post("/v1/requests/request-0/deny", json={"reason": "no right"})
        running.client.post("/v1/requests/request-1/cancel")
        wait_until(lambda: states(running) == ["delivered"] * 2)
    receiver.server.shutdown()
    told = [json.loads(body) for _, body in receiver.got]
    assert [(each["id"], each["state"]) for each in told] == [
        ("request-0", "cancelled"),
        ("request-1", "cancelled"),
    ]
    assert told[0]["reason"] == "no right"


@pytest.mark.slow
def test_one_that_goes_wrong_in_a_new_way_does_not_end_the_others(
    tmp_path: Path, tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver, real = Receiver([]), webhooks.post

    def post(addresses: Addresses, url: str, body: bytes, secret: bytes) -> int:
        if b"request-0" in body:
            raise RuntimeError("never seen before")
        return real(addresses, url, body, secret)

    monkeypatch.setattr(webhooks, "post", post)
    with primary(tmp_path / "state", tokenizer, LOCAL) as running:
        for request in REQUESTS[:2]:
            running.submit(request, callback_urls=[receiver.url])
            running.ended(request.id)
        wait_until(lambda: states(running) == ["waiting", "delivered"])
    receiver.server.shutdown()


@pytest.mark.slow
def test_what_never_arrives_is_given_up(
    tmp_path: Path, tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "_FIRST_WAIT", 0.0)
    receiver = Receiver([500] * 50)
    with primary(tmp_path / "state", tokenizer, LOCAL) as running:
        running.submit(REQUESTS[0], callback_urls=[receiver.url])
        running.ended("request-0")
        wait_until(lambda: states(running) == ["failed"])
        assert running.client.get("/healthz").status_code == 200
    receiver.server.shutdown()
    assert len(receiver.got) == 10


def test_what_was_tried_least_is_sent_first(tmp_path: Path, monkeypatch) -> None:
    """So that addresses which hang do not hold up the others for hours."""
    database = Database(tmp_path / "queue.sqlite")
    now = time.time()
    rows = [("hangs", 7, now - 100), ("hangs too", 3, now - 50), ("later", 0, now + 50)]
    with database.transaction() as connection:
        connection.executemany(
            "INSERT INTO deliveries (request, url, body, attempts, next) VALUES ('', ?, '', ?, ?)",
            [*rows, ("new", 0, now - 1), ("newer", 0, now - 2)],
        )
    sent: list[str] = []

    def post(addresses: Addresses, url: str, body: bytes, secret: bytes) -> int:
        sent.append(url)
        return 200

    monkeypatch.setattr(webhooks, "post", post)
    deliveries = webhooks.Deliveries(database, Addresses(), b"")
    while deliveries._turn() == 0:
        pass
    assert sent == ["new", "newer", "hangs too", "hangs"]
    assert 0 < (deliveries._turn() or 0) <= 50
    database.close()
