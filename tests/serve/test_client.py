"""What the client sends to whom."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import pytest

from tests.integration.commands import run_main
from tests.serve.running import Running
from tfrnet.core.errors import InputError
from tfrnet.serve.client import Client, ServiceError

SECRET = "tfr_quintessa"


class Elsewhere:
    """A server that sends everybody on to a second one, and that second one."""

    def __init__(self, code: int) -> None:
        self.heard: list[str] = []
        outer = self

        class Second(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.heard.append(str(self.headers))
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"{}")

            do_POST = do_GET  # noqa: N815

            def log_message(self, *arguments: object) -> None:
                pass

        class First(Second):
            def do_GET(self) -> None:
                self.send_response(code)
                self.send_header("Location", f"{outer.second_url}{self.path}")
                self.end_headers()

            do_POST = do_GET  # noqa: N815

        self.servers = [
            http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind) for kind in (First, Second)
        ]
        self.url, self.second_url = (
            f"http://127.0.0.1:{server.server_port}" for server in self.servers
        )
        for server in self.servers:
            threading.Thread(target=server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        for server in self.servers:
            server.shutdown()
            server.server_close()


@pytest.fixture(params=[301, 302, 303, 307, 308])
def elsewhere(request: pytest.FixtureRequest) -> Iterator[Elsewhere]:
    servers = Elsewhere(request.param)
    yield servers
    servers.stop()


def test_a_redirect_is_refused_and_nobody_else_sees_the_token(elsewhere: Elsewhere) -> None:
    client = Client(elsewhere.url, SECRET)
    for call in (client.state, lambda: client.approve("x"), lambda: list(client.watch("x"))):
        with pytest.raises(ServiceError) as caught:
            call()
        said = f"{elsewhere.url} redirects to {elsewhere.second_url}; give that as --url"
        assert str(caught.value) == said
    assert elsewhere.heard == []


@pytest.mark.parametrize("token", [f"{SECRET}\r", f"{SECRET}\r\n", f" {SECRET}\n"])
def test_a_token_from_a_file_with_other_line_ends(shared: Running, token: str) -> None:
    assert Client(shared.url, token).state()["role"] == "primary"


@pytest.mark.parametrize("token", [f"{SECRET}\rX", f"{SECRET}\n{SECRET}", f"{SECRET}\x1b[0mé", "é"])
def test_a_token_that_cannot_be_one_is_refused_and_not_shown(
    token: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match="characters that no token has") as caught:
        Client("http://127.0.0.1:1", token)
    assert SECRET not in str(caught.value)
    monkeypatch.setenv("TFRNET_TOKEN", token)
    assert run_main(("request", "list", "--url", "http://127.0.0.1:1")) == 2
    out, err = capsys.readouterr()
    assert SECRET not in out + err
    assert err.startswith("tfrnet: error: the token has characters")
