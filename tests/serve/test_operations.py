"""Running a service: tokens, limits, abuse, metrics, logs, webhooks, clients, documents."""

from __future__ import annotations

import hashlib
import hmac
import http.server
import json
import socket
import stat
import threading
import time
import warnings
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from transformers import MambaConfig, MambaForCausalLM

from tests import tiny
from tests.integration.commands import run_main, write_lines
from tests.serve.running import Running, in_groups, primary, wait_until
from tfrnet.cli.commands.serve import _address
from tfrnet.core.errors import InputError, TfrnetWarning
from tfrnet.core.loss_words import group_words
from tfrnet.serve.app import openapi_document
from tfrnet.serve.client import Client, ServiceError
from tfrnet.serve.gate import Limits, Rates
from tfrnet.serve.on_commit import OnCommit
from tfrnet.serve.service import ServiceOptions, refuse_without_mask
from tfrnet.serve.tokens import add_token, read_tokens, revoke_token
from tfrnet.serve.webhooks import Addresses, RefusedError
from tfrnet.state.certificate import check_certificate, read_certificate

REQUESTS = tiny.requests(8, size=2)
OPENAPI = Path(__file__).parents[2] / "docs" / "openapi.json"


# Tokens


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, tokenizer) -> Iterator[tuple[Running, dict]]:
    """A service with a token for each scope."""
    folder = tmp_path_factory.mktemp("guarded")
    path = folder / "tokens.json"
    scopes = ("submit", "approve", "read", "complete", "admin")
    secrets = {scope: add_token(path, scope, [scope], None) for scope in scopes}
    options = ServiceOptions(tokens=path, approve=True)
    with primary(folder / "state", tokenizer, options) as running:
        yield running, secrets


def call(running: Running, secret: str | None, method: str, path: str, **more: Any) -> Any:
    headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
    return running.client.request(method, path, headers=headers, **more)


SCOPES = [
    ("GET", "/v1/requests", "read"),
    ("GET", "/v1/state", "read"),
    ("GET", "/v1/history", "read"),
    ("GET", "/v1/verify", "read"),
    ("GET", "/v1/events", "read"),
    ("GET", "/v1/requests/x", "read"),
    ("GET", "/v1/requests/x/events", "read"),
    ("GET", "/v1/requests/x/certificate", "read"),
    ("GET", "/metrics", "read"),
    ("POST", "/v1/requests", "submit"),
    ("POST", "/v1/requests/x/cancel", "submit"),
    ("POST", "/v1/requests/x/approve", "approve"),
    ("POST", "/v1/requests/x/deny", "approve"),
    ("POST", "/v1/rollback", "admin"),
    ("GET", "/v1/models", "complete"),
    ("POST", "/v1/completions", "complete"),
    ("POST", "/v1/chat/completions", "complete"),
]


@pytest.mark.parametrize(("method", "path", "scope"), SCOPES)
def test_every_address_asks_for_its_scope(guarded, method: str, path: str, scope: str) -> None:
    running, secrets = guarded
    for secret in (None, "wrong", "tfr_" + "x" * 43):
        refused = call(running, secret, method, path)
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"] == "Bearer"
        assert refused.headers["content-type"] == "application/problem+json"
    other = "read" if scope != "read" else "complete"
    assert call(running, secrets[other], method, path).status_code == 403
    if path != "/v1/events":  # which never ends
        for allowed in (scope, "admin"):
            answer = call(running, secrets[allowed], method, path)
            assert answer.status_code not in (401, 403), answer.text


def test_every_address_of_the_description_is_asked_above() -> None:
    described = {
        (method.upper(), path.replace("{name}", "x"))
        for path, methods in openapi_document()["paths"].items()
        for method in methods
    }
    open_to_all = {("GET", "/healthz"), ("GET", "/readyz")}
    assert described == {(method, path) for method, path, _ in SCOPES} | open_to_all


def test_expired_and_revoked_tokens_and_new_ones_without_a_restart(guarded, monkeypatch) -> None:
    running, _ = guarded
    path = running.service.options.tokens
    secret = add_token(path, "guest", ["read"], 5)
    assert call(running, secret, "GET", "/v1/state").status_code == 200
    text = path.read_text()
    path.write_text(text.replace(read_tokens(path)[-1].expires, "2020-01-01T00:00:00+00:00"))
    expired = call(running, secret, "GET", "/v1/state")
    assert (expired.status_code, expired.json()["detail"]) == (401, "the token has expired")
    revoke_token(path, "guest")
    assert call(running, secret, "GET", "/v1/state").status_code == 401


def test_tokens_are_kept_as_hashes_in_a_private_file(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    secret = add_token(path, "me", ["read"], None)
    assert secret not in path.read_text()
    assert hashlib.sha256(secret.encode()).hexdigest() in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(InputError, match="already"):
        add_token(path, "me", ["read"], None)


def test_the_sender_does_not_approve(guarded) -> None:
    running, secrets = guarded
    body = REQUESTS[0].to_dict()
    assert call(running, secrets["admin"], "POST", "/v1/requests", json=body).status_code == 202
    place = "/v1/requests/request-0/approve"
    assert call(running, secrets["admin"], "POST", place).status_code == 409
    approved = call(running, secrets["approve"], "POST", place)
    assert approved.json()["decided_by"] == "approve"
    assert approved.json()["submitted_by"] == "admin"


def test_the_untouched_model_is_for_admins(guarded) -> None:
    running, secrets = guarded
    body = {"prompt": "Item", "model": "tiny@0", "max_tokens": 1}
    assert (
        call(running, secrets["complete"], "POST", "/v1/completions", json=body).status_code == 403
    )
    assert call(running, secrets["admin"], "POST", "/v1/completions", json=body).status_code == 200
    names = call(running, secrets["complete"], "GET", "/v1/models").json()["data"]
    assert [model["id"] for model in names] == ["tiny"]


def test_without_tokens_only_the_local_name_is_answered(shared: Running) -> None:
    """A page elsewhere whose name points here must not reach it through a browser."""
    answer = shared.client.get("/v1/state", headers={"Host": "evil.example"})
    assert answer.status_code == 403
    assert shared.client.get("/v1/state", headers={"Host": "localhost:1"}).status_code == 200
    form = shared.client.post(
        "/v1/rollback", content='{"to": 0}', headers={"Content-Type": "text/plain"}
    )
    assert form.status_code == 422


def test_without_tokens_only_its_own_pages_are_answered(shared: Running) -> None:
    """A page at another port of this machine may be anybody's."""
    port = shared.url.rsplit(":", 1)[1]

    def status(origin: str, host: str) -> int:
        headers = {"Origin": origin, "Host": host}
        return shared.client.post("/v1/requests/none/cancel", headers=headers).status_code

    assert status(f"http://localhost:{port}", f"localhost:{port}") == 404
    assert status("http://[::1]", "[::1]") == 404
    assert status("http://LocalHost:1", "localhost:1") == 404
    for origin in ("http://localhost:3000", "http://localhost", "null", "https://evil.example"):
        assert status(origin, f"localhost:{port}") == 403


# Bad input and abuse


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"{", 400),
        (b"", 422),
        (b"[]", 422),
        (b'{"prompt": "\xff\xfe"}', 400),
        (b"[" * 100_000, 400),
        (b'{"a":' * 50_000, 400),
        (b'{"prompt": ' + b"[" * 900 + b"]" * 900 + b"}", 422),
        (b"x" * ((1 << 20) + 1), 413),
    ],
)
@pytest.mark.parametrize("path", ["/v1/requests", "/v1/completions"])
def test_bodies_that_are_no_use(shared: Running, path: str, content: bytes, status: int) -> None:
    answer = shared.client.post(path, content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"]
    assert "Traceback" not in answer.text
    assert "/src/" not in answer.text


def test_a_body_that_hides_its_length_is_limited_too(shared: Running) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(30):
            yield b"x" * 100_000

    assert shared.client.post("/v1/completions", content=chunks()).status_code == 413


def test_a_service_that_cannot_begin_leaves_no_new_state(
    tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    model, state = tmp_path / "mamba", tmp_path / "state"
    config = MambaConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, state_size=4
    )
    MambaForCausalLM(config).save_pretrained(model)
    tokenizer.save_pretrained(model)
    retain = write_lines(tmp_path / "retain.jsonl", [each.to_dict() for each in tiny.examples(12)])
    options = ("--model", model, "--state", state, "--retain", retain, "--set", "guard_examples=4")
    assert run_main(("serve", *options)) == 2
    assert "cannot answer with a MambaForCausalLM" in capsys.readouterr().err
    assert not state.exists()


def test_unknown_addresses_and_methods(shared: Running) -> None:
    for method, path, status in (("GET", "/nothing", 404), ("DELETE", "/v1/state", 405)):
        answer = shared.client.request(method, path)
        assert answer.status_code == status
        assert answer.headers["content-type"] == "application/problem+json"


def test_an_error_of_ours_shows_no_stack(shared: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise RuntimeError("secret /etc/passwd")

    monkeypatch.setattr(shared.service, "facts", broken)
    answer = shared.client.get("/v1/state")
    assert answer.status_code == 500
    assert answer.json()["detail"] == "something went wrong in the service; its log says what"
    assert "passwd" not in answer.text
    assert "passwd" not in shared.said.getvalue()
    failed = [line for line in shared.log() if line["event"] == "failed"]
    assert failed[-1]["error"] == "RuntimeError"
    monkeypatch.undo()
    wait_until(
        lambda: (
            'tfrnet_errors_total{where="http"}'
            in httpx.get(f"{shared.url}/metrics", trust_env=False).text
        )
    )


def test_a_slow_body_is_given_up(tmp_path: Path, tokenizer) -> None:
    options = ServiceOptions(limits=Limits(body_seconds=0.3))
    with primary(tmp_path / "state", tokenizer, options) as running:
        host, port = running.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=20) as slow:
            slow.sendall(
                b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{"
            )
            assert slow.recv(4096).startswith(b"HTTP/1.1 408")
        assert running.complete("Item").status_code == 200


def test_too_many_connections_are_told_when_to_come_again(tmp_path: Path, tokenizer) -> None:
    with primary(tmp_path / "state", tokenizer, most_connections=10) as running:
        host, port = running.url.removeprefix("http://").split(":")
        idle = [socket.create_connection((host, int(port)), timeout=20) for _ in range(300)]
        late = idle[-1]  # they are counted in the order in which they came
        late.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = late.recv(4096).decode()
        assert answer.startswith("HTTP/1.1 503")
        assert "Retry-After" in answer
        assert "application/problem+json" in answer
        for each in idle:
            each.close()

        def is_served() -> bool:
            try:
                return running.client.get("/healthz").status_code == 200
            except httpx.TransportError:
                return False

        wait_until(is_served)


def test_too_many_requests_at_once_and_in_a_short_time(tmp_path: Path, tokenizer) -> None:
    options = ServiceOptions(limits=Limits(rate=1, burst=5))
    with primary(tmp_path / "state", tokenizer, options) as running:
        codes = [running.client.get("/v1/state").status_code for _ in range(12)]
        assert codes[:5] == [200] * 5
        assert codes[-1] == 429
        assert int(running.client.get("/v1/state").headers["retry-after"]) >= 1
        assert running.client.get("/healthz").status_code == 200


def test_a_bucket_fills_up_again() -> None:
    time_now = [0.0]
    rates = Rates(2, 3, lambda: time_now[0])
    assert [rates.wait("a") for _ in range(4)] == [0, 0, 0, 0.5]
    assert rates.wait("b") == 0
    time_now[0] = 0.5
    assert rates.wait("a") == 0
    assert rates.wait("a") > 0


def test_methods_that_change_weights_are_refused() -> None:
    refuse_without_mask("tfr")
    with pytest.raises(InputError, match="takes methods with a mask"):
        refuse_without_mask("npo")


# Metrics and logs


def test_metrics_and_logs(tmp_path: Path, tokenizer) -> None:
    with primary(tmp_path / "state", tokenizer) as running:
        running.submit(REQUESTS[0])
        running.ended("request-0")
        running.complete("Item 1")
        text = running.client.get("/metrics").text
        for line in (
            'tfrnet_requests{state="completed"} 1.0',
            "tfrnet_generation 1.0",
            'tfrnet_tokens_total{kind="completion"} 8.0',
            'tfrnet_outcomes_total{outcome="accepted"} 1.0',
            'tfrnet_stage_seconds_count{stage="total"} 1.0',
        ):
            assert line in text, line
        assert 'tfrnet_loss{of="guard",when="after"}' in text
        assert 'route="/v1/completions"' in text
        assert "tfrnet_requests_overdue 0.0" in text
        said = running.log()
        ways = [line["what"] for line in said if line["event"] == "request"]
        assert ways == ["queued", "started", "completed"]
        assert {"committed", "ready", "http"} <= {line["event"] for line in said}
        assert all("time" in line for line in said)


def test_warnings_are_lines_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also those of before the service is there: whoever reads the log reads JSON."""

    def read(*arguments: object) -> None:
        warnings.warn("few data\x1b[0m", TfrnetWarning, stacklevel=2)
        warnings.warn("meant for developers", stacklevel=2)
        raise InputError("no more of it")

    monkeypatch.setattr("tfrnet.cli.commands.serve.read_material", read)
    assert run_main(("serve", "--state", tmp_path / "state")) == 2
    line, error = capsys.readouterr().err.splitlines()
    assert error == "tfrnet: error: no more of it"
    warned = {"event": "warning", "level": "warning", "detail": "few data\x1b[0m"}
    assert warned.items() <= json.loads(line).items()
    assert "\x1b" not in line


# Webhooks


class Receiver:
    """Somebody who wants to be told."""

    def __init__(self, statuses: list[int]) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.got.append((dict(self.headers), body))
                self.send_response(statuses.pop(0) if statuses else 200)
                self.send_header("Location", "http://127.0.0.1:1/elsewhere")
                self.end_headers()

            def log_message(self, *arguments: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/told?a=1"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def test_who_asked_is_told_signed_and_again_until_it_arrives(
    tmp_path: Path, tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfrnet.serve.webhooks._FIRST_WAIT", 0.02)
    receiver = Receiver([500, 302])
    options = ServiceOptions(webhook_hosts=("127.0.0.1",))
    with primary(tmp_path / "state", tokenizer, options) as running:
        assert running.submit(REQUESTS[0], callback_urls=[receiver.url]).status_code == 202
        running.ended("request-0")
        read = running.service.primary.queue._database.read
        states = "SELECT state FROM deliveries"
        wait_until(lambda: [row["state"] for row in read(states)] == ["delivered"])
    receiver.server.shutdown()
    assert len(receiver.got) == 3  # no more once it has arrived, and no redirect was followed
    headers, body = receiver.got[-1]
    told = json.loads(body)
    assert (told["id"], told["state"]) == ("request-0", "completed")
    secret = bytes.fromhex((tmp_path / "state-service" / "webhook-secret").read_text())
    stamp = headers["X-Tfrnet-Timestamp"]
    expected = hmac.new(secret, stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    assert headers["X-Tfrnet-Signature"] == f"sha256={expected}"


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/x",
        "https://localhost/x",
        "https://127.0.0.1/x",
        "https://[::1]/x",
        "https://10.0.0.7/x",
        "https://169.254.169.254/latest/meta-data",
        "https://[::ffff:127.0.0.1]/x",
        "https://metadata.internal/x",
        "https://user:password@example.com/x",
        "ftp://example.com/x",
        "https://example.com:99999/x",
        "https:///x",
        "nonsense",
    ],
)
def test_addresses_that_are_not_told(shared: Running, url: str) -> None:
    answer = shared.submit(REQUESTS[1].to_dict() | {"id": "hook"}, callback_urls=[url])
    assert answer.status_code == 422
    assert "callback" in answer.json()["detail"]


def test_a_name_that_points_to_a_private_address_is_refused_when_it_is_asked() -> None:
    addresses = Addresses(resolve=lambda host, port: ["93.184.216.34", "192.168.0.1"])
    parts = addresses.refuse("https://rebinding.example/x")
    with pytest.raises(RefusedError, match="private"):
        addresses.connect(parts)


# Certificates


def test_a_certificate_is_signed_and_only_for_what_is_in_force(
    tmp_path: Path, tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFRNET_KEY", str(tmp_path / "signing.pem"))
    with primary(tmp_path / "state", tokenizer) as running:
        running.submit(REQUESTS[0])
        running.ended("request-0")
        answer = running.client.get("/v1/requests/request-0/certificate")
        assert answer.status_code == 200
        (tmp_path / "certificate.json").write_bytes(answer.content)
        certificate = read_certificate(tmp_path / "certificate.json")
        assert all(check.passed for check in check_certificate(certificate, None, None))
        page = running.client.get("/v1/requests/request-0/certificate?page=true")
        assert page.headers["content-type"].startswith("text/html")
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src" not in policy
        assert page.headers["x-content-type-options"] == "nosniff"
        running.client.post("/v1/rollback", json={"to": 0})
        assert running.client.get("/v1/requests/request-0/certificate").status_code == 409


def test_a_certificate_says_when_the_service_received_the_request_not_when_it_took_it_up(
    tmp_path: Path, tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFRNET_KEY", str(tmp_path / "signing.pem"))
    with primary(tmp_path / "state", tokenizer, ServiceOptions(approve=True)) as running:
        running.submit(REQUESTS[0])
        came_in = datetime.fromisoformat(running.show("request-0")["received_time"])
        time.sleep(2.1)  # certificates count in seconds
        assert running.client.post("/v1/requests/request-0/approve").status_code == 200
        running.ended("request-0")
        certificate = running.client.get("/v1/requests/request-0/certificate").json()
    received, applied = (datetime.fromisoformat(certificate[n]) for n in ("received", "applied"))
    assert abs((came_in - received).total_seconds()) <= 1
    assert (applied - received).total_seconds() >= 2


def test_an_unsigned_state_cannot_certify(shared: Running) -> None:
    shared.submit(REQUESTS[4].to_dict() | {"id": "plain"})
    shared.ended("plain")
    answer = shared.client.get("/v1/requests/plain/certificate")
    assert answer.status_code == 409
    assert "not signed" in answer.json()["detail"]


# The command after a commit


def test_a_command_runs_after_every_commit(tmp_path: Path, tokenizer) -> None:
    script = tmp_path / "script.sh"
    script.write_text(f'echo "$TFRNET_GENERATION $TFRNET_STATE" >> {tmp_path}/ran\n')
    options = ServiceOptions(on_commit=f"sh {script}")
    with primary(tmp_path / "state", tokenizer, options) as running:
        running.submit(REQUESTS[0])
        running.ended("request-0")
        running.client.post("/v1/rollback", json={"to": 0})
    lines = (tmp_path / "ran").read_text().splitlines()
    assert lines[-1] == f"2 {tmp_path / 'state'}"
    assert {"event": "on-commit", "generation": 2, "exit_code": 0}.items() <= next(
        line for line in reversed(running.log()) if line["event"] == "on-commit"
    ).items()


@pytest.mark.parametrize(
    ("command", "message"), [("sh 'open", "No closing quotation"), ("  ", "is empty")]
)
def test_a_wrong_command_leaves_no_queue_behind(
    tmp_path: Path, tokenizer, command: str, message: str
) -> None:
    """The state that was made for it is taken back, so that a queue would be another one's."""
    options = ServiceOptions(on_commit=command)
    with (
        pytest.raises(InputError, match=f"--on-commit .*{message}"),
        primary(tmp_path / "state", tokenizer, options),
    ):
        pass
    assert list(tmp_path.glob("**/queue.sqlite")) == []


def test_a_command_that_a_crash_kept_from_running_runs_at_the_next_start(
    tmp_path: Path, tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran, works = tmp_path / "ran", tmp_path / "works"
    script = tmp_path / "script.sh"
    script.write_text(f'test -e {works} && echo "$TFRNET_GENERATION" >> {ran}\n')
    options = ServiceOptions(on_commit=f"sh {script}")

    def served(*numbers: int) -> str:
        with primary(tmp_path / "state", tokenizer, options) as running:
            for number in numbers:
                running.submit(REQUESTS[number])
                running.ended(f"request-{number}")
        return ran.read_text() if ran.exists() else ""

    works.touch()
    # What was committed before there was a command is none of its business.
    with primary(tmp_path / "state", tokenizer) as running:
        running.submit(REQUESTS[0])
        running.ended("request-0")
    assert served() == ""
    # The process ends between the commit and the command, as it looks from the disk.
    with monkeypatch.context() as patch:
        patch.setattr(OnCommit, "committed", lambda *_: None)
        assert served(1) == ""
    assert served() == "2\n"
    assert served() == "2\n"
    # One that failed is tried again.
    works.unlink()
    assert served(2) == "2\n"
    works.touch()
    assert served() == "2\n3\n"


# Clients and documents


def test_the_python_client(shared: Running) -> None:
    client = Client(shared.url)
    client.submit(REQUESTS[2].to_dict())
    events = [event["event"] for event in client.watch("request-2")]
    assert (events[0], events[-1]) == ("queued", "completed")
    assert client.show("request-2")["state"] == "completed"
    assert "request-2" in [request["id"] for request in client.requests("completed")]
    assert client.verify()["passed"]
    generation = client.state()["generation"]
    assert client.rollback(generation)["generation"] == generation + 1
    with pytest.raises(ServiceError, match=r"no request with this id \(404\)") as caught:
        client.show("unknown")
    assert caught.value.status == 404
    with pytest.raises(ServiceError, match="cannot be reached"):
        Client("http://127.0.0.1:1").state()


def test_the_commands_of_a_client(
    shared: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_text(json.dumps(REQUESTS[3].to_dict()) + "\n")

    def run(*arguments: object) -> tuple[int, str, str]:
        code = run_main(("request", *arguments, "--url", shared.url))
        out, err = capsys.readouterr()
        return code, out, err

    code, out, _ = run("submit", path)
    assert (code, out.split(",")[0].split(":")[0]) == (0, "request-3")
    code, out, _ = run("watch", "request-3")
    assert code == 0
    assert "queued" in out
    assert out.splitlines()[-1].startswith("request-3: completed")
    code, out, _ = run("show", "request-3", "--json")
    assert json.loads(out)["state"] == "completed"
    code, out, _ = run("list", "--state", "completed")
    assert "request-3: completed" in out
    code, _, err = run("cancel", "request-3")
    assert code == 2
    assert err == "tfrnet: error: the request is completed, so this cannot be done now (409)\n"


@pytest.mark.slow
def test_the_commands_of_who_decides(
    tmp_path: Path, tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_text("".join(json.dumps(r.to_dict()) + "\n" for r in REQUESTS[:3]))
    with primary(tmp_path / "state", tokenizer, ServiceOptions(approve=True)) as running:

        def run(*arguments: object) -> tuple[int, str]:
            code = run_main(("request", *arguments, "--url", running.url))
            return code, capsys.readouterr().out

        code, out = run("submit", path)
        assert code == 0
        assert out.count("pending, waiting for approval, 30 days left") == 3
        assert run("deny", "request-0", "--reason", "no right") == (
            0,
            "request-0: cancelled, no right\n",
        )
        assert run("cancel", "request-1") == (0, "request-1: cancelled, cancelled on request\n")
        code, out = run("approve", "request-2")
        assert (code, out.split(",")[0]) == (0, "request-2: pending")
        code, out = run("watch", "request-2")
        assert (code, out.splitlines()[-1].split(",")[0]) == (0, "request-2: completed")
        assert run("show", "request-0")[0] == 1


def test_the_client_says_what_became_of_groups_and_what_the_audit_found(
    tmp_path: Path, tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    retain = in_groups(tiny.examples(12), "laws", "letters")
    with primary(tmp_path / "state", tokenizer, audit=True, retain=retain) as running:
        running.submit(REQUESTS[0])
        found = running.ended("request-0")
        assert run_main(("request", "show", "request-0", "--url", running.url)) == 0
    assert "wordings" in found["audit"]
    assert found["guard_groups"] == group_words(found["outcome"]["guard_groups"])
    assert capsys.readouterr().out.splitlines()[-2:] == [
        f"  guard by group: {found['guard_groups']}",
        f"  audit: {found['audit']}",
    ]


def test_the_commands_for_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tokens.json"
    assert run_main(("token", "add", "--tokens", path, "--name", "ops", "--days", 3)) == 0
    assert capsys.readouterr().out.startswith("tfr_")
    assert run_main(("token", "list", "--tokens", path)) == 0
    assert "ops: submit, read, until" in capsys.readouterr().out
    assert run_main(("token", "revoke", "--tokens", path, "--name", "ops")) == 0
    assert run_main(("token", "revoke", "--tokens", path, "--name", "ops")) == 2
    assert "no token named 'ops'" in capsys.readouterr().err


def test_serve_refuses_what_cannot_be_before_a_model_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*arguments: object) -> str:
        assert run_main(("serve", "--state", tmp_path / "state", *arguments)) == 2
        (line,) = capsys.readouterr().err.splitlines()
        return line

    retain = tmp_path / "retain.jsonl"
    retain.write_text('{"prompt": "Bees make", "answer": "honey"}\n')
    assert "needs --tokens FILE" in said("--host", "0.0.0.0")
    assert "does not exist; 'tfrnet token add" in said(
        "--tokens", tmp_path / "none.json", "--retain", retain, "--port", 0
    )
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert "cannot listen on 127.0.0.1" in said("--retain", retain, "--port", port)


def test_a_replica_takes_no_options_that_it_would_do_nothing_about(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replica = ("serve", "--follow", tmp_path / "none")
    more = ("--on-commit", "x", "--approve", "--seed", 0, "--set", "steps=1", "--max-queue", 10_000)
    assert run_main((*replica, *more)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "a replica (--follow) only answers completions" in line
    for option in more:
        if str(option).startswith("--"):
            assert option in line
    useful = ("--device", "cpu", "--grace", 1, "--rate", 5, "--name", "x", "--host", "127.0.0.1")
    assert run_main((*replica, *useful, "--port", 0)) == 2
    assert "holds no state" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "address"),
    [("::1", "http://[::1]:80/x"), ("localhost", "http://localhost:80/x")],
)
def test_the_address_that_is_said_is_one(host: str, address: str) -> None:
    assert _address(host, 80, "/x") == address


def test_the_committed_description_is_that_of_the_code() -> None:
    assert json.loads(OPENAPI.read_text()) == openapi_document(), (
        "run 'python -m tfrnet.serve.openapi docs/openapi.json'"
    )


def test_the_pages_ask_nothing_from_outside(shared: Running) -> None:
    for path in ("/", "/docs"):
        page = shared.client.get(path)
        assert page.status_code == 200
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert "https://" not in page.text


def test_behind_a_path_of_a_proxy(tmp_path: Path, tokenizer) -> None:
    options = ServiceOptions(approve=True)
    with primary(tmp_path / "state", tokenizer, options, root_path="/tfrnet") as running:
        answer = running.submit(REQUESTS[0])
        assert answer.headers["location"] == "/tfrnet/v1/requests/request-0"
        # Proxies hand on the path with or without what they were asked under.
        assert running.client.get("/tfrnet/v1/requests/request-0").status_code == 200
        assert running.client.get("/v1/requests/request-0").status_code == 200
        assert running.client.get("/tfrnet/healthz").status_code == 200
