"""The service as a process: ended in the middle of a pass, and flooded with connections."""

from __future__ import annotations

import re
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
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

Unlearner._mean_loss = endless
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
