"""Behind nginx, under a path, with the location block that is shipped."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests import tiny
from tests.browser import needed_playwright, open_browser
from tests.serve.running import primary
from tfrnet.serve.client import Client

NGINX = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
LOCATION = Path(__file__).parents[2] / "packages" / "service" / "nginx-location.conf"
needs_nginx = pytest.mark.skipif(
    NGINX is None, reason="nginx is not installed: apt-get install nginx-light"
)
CONFIG = """
daemon off;
worker_processes 1;
pid {folder}/pid;
error_log {folder}/error.log;
events {{ }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        include {folder}/location.conf;
    }}
}}
"""


@contextmanager
def nginx(folder: Path, service: str) -> Iterator[str]:
    """Run nginx before a service; give the address under which it puts it."""
    assert NGINX
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    block = LOCATION.read_text()
    assert "http://127.0.0.1:8000/" in block
    (folder / "location.conf").write_text(block.replace("http://127.0.0.1:8000", service))
    (folder / "nginx.conf").write_text(CONFIG.format(folder=folder, port=port))
    command = [NGINX, "-p", folder, "-e", folder / "error.log", "-c", folder / "nginx.conf"]
    process = subprocess.Popen(list(map(str, command)))
    try:
        end = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=5).close()
                break
            except ConnectionRefusedError:
                assert time.monotonic() < end
                assert process.poll() is None, (folder / "error.log").read_text()
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/tfrnet"
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.slow
@needs_nginx
def test_everything_works_behind_a_proxy(tmp_path: Path, tokenizer) -> None:
    (tmp_path / "nginx").mkdir()
    request = tiny.requests(1)[0]
    with (
        primary(tmp_path / "state", tokenizer, root_path="/tfrnet") as running,
        nginx(tmp_path / "nginx", running.url) as url,
        httpx.Client(base_url=url, timeout=60, trust_env=False) as client,
    ):
        assert client.get(url).headers["location"].endswith("/tfrnet/")
        assert client.get("/").text == running.client.get("/").text
        for name in (request.id, "2026-11-03/17", "was? ü%2F #1"):
            body = request.to_dict() | {"id": name}
            answer = client.post("/v1/requests", json=body)
            assert answer.status_code == 202, answer.text
            shown = client.get(
                f"http://{client.base_url.netloc.decode()}" + answer.headers["location"]
            )
            assert shown.json()["id"] == name
            events = [event["event"] for event in Client(url).watch(name)]
            assert events[0] == "queued"
            assert events[-1] in ("completed", "rejected")
        _assert_streams_come_in_pieces(client)
        # What a caller says of its own address is not what the service counts by.
        with httpx.stream(
            "GET", f"{url}/v1/events", headers={"X-Forwarded-For": "203.0.113.9"}, trust_env=False
        ):
            gate: Any = running.server.config.app
            assert "@203.0.113.9" not in gate._of_callers
        models = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0).models.list()
        assert [model.id for model in models] == ["tiny", "tiny@0"]
        assert client.get("/nothing").headers["content-type"] == "application/problem+json"


def _assert_streams_come_in_pieces(client: httpx.Client) -> None:
    body = {"prompt": "Item", "max_tokens": 60, "stream": True, "temperature": 0}
    with client.stream("POST", "/v1/completions", json=body) as stream:
        assert len(list(stream.iter_raw())) > 3
    with client.stream("GET", "/v1/events") as stream:
        assert next(stream.iter_lines()) == "event: hello"


def test_continuous_integration_brings_nginx() -> None:
    local = (Path(__file__).parents[2] / ".ci" / "run").read_text()
    assert re.search("apt-get install .*nginx", local)


@pytest.mark.slow
@needs_nginx
def test_the_dashboard_works_under_a_path(tmp_path: Path, tokenizer) -> None:
    sync_api = needed_playwright()
    (tmp_path / "nginx").mkdir()
    with (
        primary(tmp_path / "state", tokenizer, root_path="/tfrnet") as running,
        nginx(tmp_path / "nginx", running.url) as url,
        open_browser(sync_api) as browser,
    ):
        page = browser.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(url)
        page.locator("#live", has_text="live").wait_for()
        running.submit(tiny.requests(1)[0])
        page.locator("#way li", has_text="completed").wait_for()
        page.close()
    assert [each for each in asked if not each.startswith((url, "data:"))] == []
