"""The ledger read page by page while requests are committed and rolled back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import tiny
from tests.serve.running import Running, primary, replica
from tfrnet.core import files
from tfrnet.serve import worker
from tfrnet.serve.gate import Limits
from tfrnet.serve.service import ServiceOptions
from tfrnet.state.pointer import Pointer

REQUEST = tiny.requests(1)[0]


class Reader:
    """Reads on where it was, in pages, as the dashboard does."""

    def __init__(self, url: str, limit: int) -> None:
        self._client = httpx.Client(base_url=url, timeout=60, trust_env=False)
        self._limit = limit
        self.lines: list[dict[str, Any]] = []

    def read_on(self) -> None:
        more = True
        while more:
            place = f"/v1/history?after={len(self.lines)}&limit={self._limit}"
            answer = self._client.get(place)
            assert answer.status_code == 200, answer.text
            page = answer.json()
            self.lines += page["entries"]
            more = page["next"] is not None
            assert not more or page["next"] == len(self.lines)

    def read_until(self, over: threading.Event) -> None:
        while not over.wait(0.02):  # a service has a limit on calls
            self.read_on()
        self.read_on()


def commit_and_roll_back(running: Running) -> None:
    running.submit(REQUEST)
    assert running.ended(REQUEST.id)["state"] == "completed"
    for to in (0, 1) * 3:
        answer = running.client.post("/v1/rollback", json={"to": to})
        assert answer.status_code == 200, answer.text


def test_readers_beside_commits_and_rollbacks_see_every_line_once(
    tmp_path: Path, tokenizer
) -> None:
    state = tmp_path / "state"
    over = threading.Event()
    errors: list[BaseException] = []

    def guarded(work: Callable[[threading.Event], None]) -> None:
        try:
            work(over)
        except BaseException as error:
            errors.append(error)

    unlimited = ServiceOptions(limits=Limits(rate=1e6, burst=10**6))
    with primary(state, tokenizer, unlimited) as running, replica(state, tokenizer) as follower:
        readers = [Reader(running.url, 1), Reader(running.url, 3), Reader(follower.url, 2)]
        threads = [threading.Thread(target=guarded, args=(r.read_until,)) for r in readers]
        for thread in threads:
            thread.start()
        try:
            commit_and_roll_back(running)
        finally:
            over.set()
            for thread in threads:
                thread.join(60)
        assert errors == []
        lines = running.service.primary.session.store.entries
    assert [line["kind"] for line in lines] == ["created", "request", *["rollback"] * 6]
    assert all(reader.lines == lines for reader in readers)


@pytest.mark.parametrize("fault", ["torn line", "pointer"])
def test_a_commit_that_fails_shows_no_line_before_it_is_certain(
    tmp_path: Path, tokenizer, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Read in the middle of a commit, which fails before or after its line is whole."""
    monkeypatch.setattr(worker, "_FIRST_WAIT", 0.05)
    append, point = files.append, Pointer.write
    with primary(tmp_path / "state", tokenizer) as running:
        reader = Reader(running.url, 1)
        seen: list[int] = []

        def in_the_middle() -> None:
            reader.read_on()
            seen.append(len(reader.lines))
            if len(seen) == 1:
                raise OSError(28, "No space left on device")

        def torn(path: Path, data: bytes) -> None:
            if not seen:
                append(path, data[: len(data) // 2])
                in_the_middle()
            append(path, data)

        def pointed(self: Pointer, path: Path) -> None:
            in_the_middle()
            point(self, path)

        if fault == "torn line":
            monkeypatch.setattr(files, "append", torn)
        else:
            monkeypatch.setattr(Pointer, "write", pointed)
        running.submit(REQUEST)
        assert running.ended("request-0")["state"] == "completed"
        reader.read_on()
        assert seen[0] == 1
        assert reader.lines == running.service.primary.session.store.entries
        assert [line["kind"] for line in reader.lines] == ["created", "request"]
