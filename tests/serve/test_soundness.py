"""A state that is changed under a running service: nothing is added to it, and it says so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import tiny
from tests.serve.running import Running, primary, wait_until
from tests.states import story
from tfrnet.method_state import verify_state
from tfrnet.serve import worker
from tfrnet.serve.queue import Queue
from tfrnet.state import ledger

REQUESTS = tiny.requests(3, size=2)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_FIRST_WAIT", 0.1)
    monkeypatch.setattr(worker, "_LONGEST_WAIT", 0.2)


def is_ready(running: Running) -> bool:
    return running.client.get("/readyz").status_code == 200


def says_unsound(running: Running) -> bool:
    answer = running.client.get("/readyz")
    assert str(running.state) not in answer.text
    return answer.status_code == 503 and "failed a check" in answer.json()["detail"]


def changed(data: bytes, how: str) -> bytes:
    lines = data.splitlines(keepends=True)
    return {
        "a letter": data.replace(b'"accepted"', b'"accepteD"', 1),
        "the last letter": data[:-10] + bytes([data[-10] ^ 1]) + data[-9:],
        "a line less": b"".join(lines[:-1]),
        "a line more": data + lines[-1],
        "nothing": b"",
    }[how]


@pytest.mark.parametrize(
    "how", ["a letter", "the last letter", "a line less", "a line more", "nothing"]
)
def test_nothing_is_added_to_a_damaged_ledger(tmp_path: Path, tokenizer, how: str) -> None:
    with primary(tmp_path / "state", tokenizer) as running:
        path = tmp_path / "state" / "ledger.jsonl"
        running.submit(REQUESTS[0])
        running.ended("request-0")
        sound = path.read_bytes()
        path.write_bytes(changed(sound, how))
        assert running.submit(REQUESTS[1]).status_code == 202
        wait_until(lambda: says_unsound(running))
        assert running.client.post("/v1/rollback", json={"to": 0}).status_code == 503
        assert running.complete("Item").status_code == 200
        assert path.read_bytes() == changed(sound, how)
        # Its words are kept, and it is applied once all is well again.
        path.write_bytes(sound)
        assert running.ended("request-1")["state"] == "completed"
        assert is_ready(running)
    assert [entry["id"] for entry in story(tmp_path / "state")] == ["request-0", "request-1"]
    assert all(check.passed for check in verify_state(tmp_path / "state"))


def test_a_rollback_is_not_added_to_a_damaged_ledger_either(tmp_path: Path, tokenizer) -> None:
    with primary(tmp_path / "state", tokenizer) as running:
        path = tmp_path / "state" / "ledger.jsonl"
        running.submit(REQUESTS[0])
        running.ended("request-0")
        path.write_bytes(damaged := changed(path.read_bytes(), "a letter"))
        assert running.client.post("/v1/rollback", json={"to": 0}).status_code == 503
        assert path.read_bytes() == damaged
        assert says_unsound(running)


def test_a_ledger_that_is_damaged_while_a_request_is_worked_out(
    tmp_path: Path, tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with primary(tmp_path / "state", tokenizer) as running:
        path = tmp_path / "state" / "ledger.jsonl"
        running.submit(REQUESTS[0])
        running.ended("request-0")
        sound = path.read_bytes()
        real = Queue.words

        def words(queue: Queue, entry: object) -> object:
            path.write_bytes(changed(sound, "a letter"))
            monkeypatch.setattr(Queue, "words", real)
            return real(queue, entry)

        monkeypatch.setattr(Queue, "words", words)
        running.submit(REQUESTS[1])
        wait_until(lambda: says_unsound(running))
        assert path.read_bytes() == changed(sound, "a letter")
        path.write_bytes(sound)
        assert running.ended("request-1")["state"] == "completed"


def test_a_check_that_somebody_asks_for_counts_too(tmp_path: Path, tokenizer) -> None:
    """A generation is not looked at before a commit, but whoever verifies the state finds it."""
    with primary(tmp_path / "state", tokenizer) as running:
        running.submit(REQUESTS[0])
        running.ended("request-0")
        path = tmp_path / "state" / "generations" / "00000000.safetensors"
        data = path.read_bytes()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        assert is_ready(running)
        assert not running.client.get("/v1/verify").json()["passed"]
        assert says_unsound(running)
        running.submit(REQUESTS[1])
        wait_until(lambda: any("failed a check" in str(line) for line in running.log()))
        assert running.show("request-1")["state"] == "pending"
        path.write_bytes(data)
        assert running.ended("request-1")["state"] == "completed"
        assert is_ready(running)


def test_a_check_says_no_place_and_garbles_no_word(
    tmp_path: Path, tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the state is called, and wherever its digest key lies."""
    key = tmp_path / "secret-place" / "digest-key"
    monkeypatch.setenv("TFRNET_DIGEST_KEY", str(key))
    monkeypatch.chdir(tmp_path)
    with primary(Path("s"), tokenizer) as running:
        for is_there in (True, False):
            if not is_there:
                key.unlink()
            answer = running.client.get("/v1/verify")
            told = {check["name"]: check for check in answer.json()["checks"]}
            assert ", fingerprint " in told["base model"]["detail"]
            assert told["key"]["passed"] is is_there
            assert "elsewhere, as TFRNET_DIGEST_KEY says" in told["key"]["detail"]
            assert str(tmp_path) not in answer.text


def test_a_ledger_that_was_only_touched_is_read_once_and_is_fine(
    tmp_path: Path, tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with primary(tmp_path / "state", tokenizer) as running:
        running.submit(REQUESTS[0])
        running.ended("request-0")
        read, real = [], ledger.read
        monkeypatch.setattr(ledger, "read", lambda *given: (read.append(1), real(*given))[1])
        os.utime(tmp_path / "state" / "ledger.jsonl")
        running.submit(REQUESTS[1])
        assert running.ended("request-1")["state"] == "completed"
        often = len(read)
        assert often
        running.submit(REQUESTS[2])
        assert running.ended("request-2")["state"] == "completed"
        assert len(read) == often
