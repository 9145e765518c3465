"""The service as a process: started, followed, ended in mid-pass, flooded with connections."""

from __future__ import annotations

import json
import os
import re
import resource
import select
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from tests.serve.running import ENDED, wait_until
from tests.serve.test_kill import REQUESTS, Process, data_files, opening
from tfrnet.method_state import verify_state

# A pass that lasts for ever, in a thread that nothing can interrupt.
ENDLESS = """
import sys, time
from tfrnet.unlearner import Unlearner
from tfrnet.cli.main import main

def endless(*arguments):
    print("in the pass", file=sys.stderr, flush=True)
    time.sleep(3600)

Unlearner._losses = endless
sys.exit(main())
"""
FLOOD = 10_000


@pytest.mark.slow
def test_a_process_that_is_stopped_in_mid_pass_ends_and_the_next_applies_the_request(
    tiny_folder: Path, tmp_path: Path
) -> None:
    retain, _ = data_files(tmp_path)
    arguments = opening(tiny_folder, retain, tmp_path / "state")
    log = tmp_path / "log"
    command = [sys.executable, "-c", ENDLESS, "serve", *map(str, arguments)]
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [*command, "--port", "0", "--grace", "0.5"],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    try:
        assert process.stdout
        found = re.search(r"http://\S+?(?=/?$)", process.stdout.readline().strip())
        assert found, log.read_text()[-2000:]
        answer = httpx.post(
            f"{found[0]}/v1/requests", json=REQUESTS[0].to_dict(), trust_env=False, timeout=60
        )
        assert answer.status_code == 202
        wait_until(lambda: "in the pass" in log.read_text(), 120)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    assert "Traceback" not in log.read_text()
    lines = [line for line in log.read_text().splitlines() if line != "in the pass"]
    assert {"ready", "warning"} <= {json.loads(line)["event"] for line in lines}
    assert all(check.passed for check in verify_state(tmp_path / "state"))
    service = Process(arguments, log)
    try:
        place = f"/v1/requests/{REQUESTS[0].id}"
        wait_until(lambda: service.call("GET", place).json()["state"] in ENDED, 120)
        assert service.call("GET", place).json()["outcome"]["line"] == 2
    finally:
        service.kill()


def answered(connections: list[socket.socket], seconds: float) -> list[bytes]:
    """Return what each connection is told; nothing where that takes too long."""
    got = {connection.fileno(): b"" for connection in connections}
    known = {connection.fileno(): connection for connection in connections}
    poll = select.poll()
    for number in known:
        poll.register(number, select.POLLIN)
    end = time.monotonic() + seconds
    while known and time.monotonic() < end:
        for number, _ in poll.poll(1000):
            try:
                got[number] = known[number].recv(4096)
            except OSError as error:
                got[number] = type(error).__name__.encode()
            poll.unregister(number)
            del known[number]
    return list(got.values())


@pytest.mark.slow
def test_ten_thousand_connections_at_once(tiny_folder: Path, tmp_path: Path) -> None:
    """As many as may be are answered, all others are told when to come again, nobody hangs."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < FLOOD + 1000:
        pytest.skip(f"this machine allows {hard} open files only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (FLOOD + 1000, hard))
    retain, _ = data_files(tmp_path)
    arguments = opening(tiny_folder, retain, tmp_path / "state")
    service = Process([*arguments, "--max-connections", 500], tmp_path / "log")
    connections: list[socket.socket] = []
    try:
        host, port = service.url.removeprefix("http://").split(":")
        process = psutil.Process(service.process.pid)
        before = process.memory_info().rss
        while len(connections) < FLOOD:
            connections.append(socket.create_connection((host, int(port)), timeout=120))
            connections[-1].sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        told = answered(connections, 120)
        assert process.memory_info().rss - before < 400e6
        lines = Counter(answer.split(b"\r\n")[0] for answer in told)
        served, refused = b"HTTP/1.1 200 OK", b"HTTP/1.1 503 Service Unavailable"
        assert set(lines) == {served, refused}, lines
        assert lines[refused] > FLOOD / 2
        assert all(b"Retry-After: " in answer for answer in told if answer.startswith(refused))
        for connection in connections:
            connection.close()
        wait_until(lambda: service.call("GET", "/readyz").status_code == 200)
    finally:
        for connection in connections:
            connection.close()
        service.kill()


# Whoever asks another machine is told that there is none, and it is written down.
OFFLINE = """
import socket, sys
from tfrnet.cli.main import main

real_lookup, real_connect = socket.getaddrinfo, socket.socket.connect

def refuse(host):
    if host not in ("127.0.0.1", "localhost", "::1"):
        print("asked another machine:", host, file=sys.stderr, flush=True)
        raise OSError("no network")

def lookup(host, *rest, **more):
    refuse(host)
    return real_lookup(host, *rest, **more)

def connect(self, address):
    if isinstance(address, tuple):
        refuse(address[0])
    return real_connect(self, address)

socket.getaddrinfo, socket.socket.connect = lookup, connect
sys.exit(main())
"""


@pytest.mark.slow
def test_it_starts_without_internet_for_this_machine_alone_and_says_how_to_try_it(
    tiny_folder: Path, tmp_path: Path
) -> None:
    retain, _ = data_files(tmp_path)
    log = tmp_path / "log"
    command = [sys.executable, "-c", OFFLINE, "serve"]
    command += map(str, opening(tiny_folder, retain, tmp_path / "state"))
    environment = {name: v for name, v in os.environ.items() if name != "HF_HUB_OFFLINE"}
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [*command, "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env=environment,
        )
    try:
        assert process.stdout
        dashboard, line = process.stdout.readline(), process.stdout.readline()
        assert dashboard.startswith("dashboard"), log.read_text()[-2000:]
        page = httpx.get(dashboard.split()[1], trust_env=False, timeout=60)
        assert page.headers["content-type"].startswith("text/html")
        words = shlex.split(line)
        assert words[:2] == ["try", "curl"]
        answer = subprocess.run(
            ["curl", "--noproxy", "*", "--silent", *words[2:]], capture_output=True, timeout=60
        )
        assert json.loads(answer.stdout)["usage"]["completion_tokens"] > 0
        listening = [
            each.laddr.ip
            for each in psutil.Process(process.pid).net_connections()
            if each.status == psutil.CONN_LISTEN
        ]
        assert listening == ["127.0.0.1"]
    finally:
        process.kill()
        process.wait()
    assert "asked another machine" not in log.read_text()


@pytest.mark.slow
def test_without_its_extra_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['fastapi'] = None; from tfrnet.cli.main import main; main()"
    found = subprocess.run(
        [sys.executable, "-c", code, "serve"], capture_output=True, text=True, timeout=120
    )
    assert "needs the fastapi package: pip install 'tfrnet[serve]'" in found.stderr
    assert len(found.stderr.splitlines()) == 1


@pytest.mark.slow
def test_a_replica_as_a_process_follows_one_that_is_killed(
    tiny_folder: Path, tmp_path: Path
) -> None:
    retain, _ = data_files(tmp_path)
    state, prompt = tmp_path / "state", REQUESTS[0].examples[0].prompt
    service = Process(opening(tiny_folder, retain, state), tmp_path / "log")
    replica = Process(["--follow", state, "--device", "cpu"], tmp_path / "replica-log")
    try:

        def generation(of: Process) -> str:
            body = {"prompt": prompt, "max_tokens": 1, "temperature": 0}
            return of.call("POST", "/v1/completions", body).headers["x-tfrnet-generation"]

        assert generation(replica) == "0"
        for request in REQUESTS[:3]:
            service.call("POST", "/v1/requests", request.to_dict())
            place = f"/v1/requests/{request.id}"
            wait_until(lambda at=place: service.call("GET", at).json()["state"] in ENDED, 120)
        newest = generation(service)
        assert newest != "0"
        wait_until(lambda: generation(replica) == newest, 5)
        assert replica.call("POST", "/v1/requests", REQUESTS[3].to_dict()).status_code == 409
        service.kill()
        assert generation(replica) == newest
        assert replica.call("GET", "/readyz").status_code == 200
    finally:
        service.kill()
        replica.kill()


@pytest.mark.real
@pytest.mark.slow
def test_make_serve_serves_the_default_model(tmp_path: Path) -> None:
    """With an environment that is already there: making one is what every other target does too."""
    root = Path(__file__).parents[2]
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).symlink_to(root / name)
    ready = tmp_path / "ready"
    ready.touch()
    # Another service may hold the usual port.
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, command in (("python", ""), ("tfrnet", "-m tfrnet")):
        last = "--port 0" if name == "tfrnet" else ""
        (tools / name).write_text(f'#!/bin/sh\nexec {sys.executable} {command} "$@" {last}\n')
        (tools / name).chmod(0o755)
    process = subprocess.Popen(
        ["make", "serve", f"BIN={tools}", f"READY={ready}"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=(tmp_path / "log").open("w"),
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout
        found = re.search(r"dashboard +(\S+)/\n.*curl", "".join(_until(process.stdout, "curl")))
        assert found, (tmp_path / "log").read_text()[-2000:]
        state = httpx.get(f"{found[1]}/v1/state", trust_env=False, timeout=60).json()
        assert (state["model"], state["generation"]) == ("smollm2-135m", 0)
        assert state["newest_request"] is None
        body = {"prompt": "The capital of France is", "temperature": 0, "max_tokens": 3}
        answer = httpx.post(f"{found[1]}/v1/completions", json=body, trust_env=False, timeout=60)
        assert "Paris" in answer.json()["choices"][0]["text"]
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _until(lines: Iterable[str], word: str) -> Iterator[str]:
    """Give lines up to the one that has a word."""
    for line in lines:
        yield line
        if word in line:
            return
