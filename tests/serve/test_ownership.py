"""Whose queue a folder is, and who may read what lies in it."""

from __future__ import annotations

import io
import json
import os
import sqlite3
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import tiny
from tests.serve.running import make_session, primary
from tests.states import story
from tfrnet.core.errors import StateError
from tfrnet.serve.database import Database
from tfrnet.serve.log import Log
from tfrnet.serve.service import ServiceOptions, open_primary
from tfrnet.session import Session

REQUESTS = tiny.requests(2, size=2)


@pytest.fixture(autouse=True)
def _usual_mask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def refused(session: Session, queue: Path) -> str:
    """Serve a state with a queue and return what is said against it."""
    options = ServiceOptions(queue_folder=queue)
    with session, pytest.raises(StateError) as caught:
        open_primary(session, options, Log(io.StringIO()))
    # Nothing of the service goes on.
    assert [each.name for each in threading.enumerate() if each.name == "completions"] == []
    return str(caught.value)


def forget_owner(queue: Path) -> None:
    """Make a queue one of before."""
    connection = sqlite3.connect(queue / "queue.sqlite")
    connection.execute("DROP TABLE owner")
    connection.commit()
    connection.close()


def waiting_queue(folder: Path, tokenizer) -> Path:
    """Return the queue of a state in which a request waits for approval."""
    queue = folder / "queue"
    options = ServiceOptions(queue_folder=queue, approve=True)
    with primary(folder / "first", tokenizer, options) as running:
        assert running.submit(REQUESTS[0]).status_code == 202
    return queue


@pytest.mark.parametrize("is_of_before", [False, True])
def test_a_queue_is_refused_to_another_state(tmp_path: Path, tokenizer, is_of_before: bool) -> None:
    """A deletion would be applied to the wrong state, and be lost for its own."""
    queue = waiting_queue(tmp_path, tokenizer)
    if is_of_before:
        forget_owner(queue)
    said = refused(make_session(tmp_path / "second", tokenizer), queue)
    assert f"the queue in {queue} is that of another state" in said
    assert "\n" not in said
    assert story(tmp_path / "second") == []
    # It is still its own state's.
    with primary(
        tmp_path / "first", tokenizer, ServiceOptions(queue_folder=queue, approve=True)
    ) as running:
        assert running.client.post("/v1/requests/request-0/approve").status_code == 200
        assert running.ended("request-0")["state"] == "completed"


def test_a_queue_of_before_takes_on_the_state_that_it_is_used_with(
    tmp_path: Path, tokenizer
) -> None:
    queue = tmp_path / "queue"
    for _ in range(2):
        with primary(tmp_path / "first", tokenizer, ServiceOptions(queue_folder=queue)):
            pass
        if not (tmp_path / "second").exists():
            forget_owner(queue)
            make_session(tmp_path / "second", tokenizer).close()
    assert "another state" in refused(make_session(tmp_path / "second", tokenizer), queue)


def test_a_queue_without_its_key_is_refused_and_lost_nothing(tmp_path: Path, tokenizer) -> None:
    queue = waiting_queue(tmp_path, tokenizer)
    key = (queue / "key").read_bytes()
    (queue / "key").unlink()
    said = refused(make_session(tmp_path / "first", tokenizer), queue)
    assert f"'request-0' cannot be read with the key in {queue / 'key'}" in said
    assert "put back the key" in said
    assert "\n" not in said
    (queue / "key").write_bytes(key)
    options = ServiceOptions(queue_folder=queue)
    with primary(tmp_path / "first", tokenizer, options) as running:
        assert running.client.post("/v1/requests/request-0/approve").status_code == 200
        assert running.ended("request-0")["state"] == "completed"


def test_a_queue_in_which_nothing_waits_may_get_another_key(tmp_path: Path, tokenizer) -> None:
    with primary(tmp_path / "state", tokenizer) as running:
        running.submit(REQUESTS[0])
        running.ended("request-0")
    (tmp_path / "state-service" / "key").unlink()
    with primary(tmp_path / "state", tokenizer) as running:
        running.submit(REQUESTS[1])
        assert running.ended("request-1")["state"] == "completed"


@pytest.mark.parametrize("spelling", ["here", "link"])
def test_the_queue_is_the_same_however_the_state_is_spelled(
    tmp_path: Path, tokenizer, monkeypatch: pytest.MonkeyPatch, spelling: str
) -> None:
    with primary(tmp_path / "state", tokenizer, ServiceOptions(approve=True)) as running:
        running.submit(REQUESTS[0])
    if spelling == "here":
        monkeypatch.chdir(tmp_path / "state")
        state = Path()
    else:
        state = tmp_path / "link"
        state.symlink_to(tmp_path / "state")
    with primary(state, tokenizer) as running:
        assert running.show("request-0")["approval"] == "waiting"
    assert {path.name for path in tmp_path.iterdir()} - {"link"} == {"state", "state-service"}


def test_a_request_with_a_digest_of_before_is_finished(tmp_path: Path, tokenizer) -> None:
    """The ledger has it under a newer digest than the queue."""
    queue = waiting_queue(tmp_path, tokenizer)
    options = ServiceOptions(queue_folder=queue, approve=True)
    connection = sqlite3.connect(queue / "queue.sqlite")
    connection.execute("UPDATE requests SET digest = 'older'")
    connection.commit()
    connection.close()
    with primary(tmp_path / "first", tokenizer, options) as running:
        running.client.post("/v1/requests/request-0/approve")
        done = running.ended("request-0")
        assert (done["state"], done["outcome"]["line"]) == ("completed", 2)
        assert [line for line in running.log() if "error" in line] == []


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_files_of_a_queue_are_their_owners_alone(tmp_path: Path) -> None:
    database = Database(tmp_path / "queue" / "queue.sqlite")
    modes = {path.name: mode(path) for path in (tmp_path / "queue").iterdir()}
    database.close()
    assert {"queue.sqlite", "queue.sqlite-wal", "queue.sqlite-shm"} <= set(modes)
    assert set(modes.values()) == {0o600}
    assert mode(tmp_path / "queue") == 0o700
    # Those of before were open to others.
    (tmp_path / "queue" / "queue.sqlite").chmod(0o644)
    Database(tmp_path / "queue" / "queue.sqlite").close()
    assert mode(tmp_path / "queue" / "queue.sqlite") == 0o600


def test_a_folder_that_is_there_keeps_its_mode_and_the_log_says_who_can_read_it(
    tmp_path: Path, tokenizer
) -> None:
    queue = tmp_path / "queue"
    queue.mkdir(mode=0o755)
    with primary(tmp_path / "state", tokenizer, ServiceOptions(queue_folder=queue)) as running:
        (warned,) = [line for line in running.log() if line.get("level") == "warning"]
        assert f"{queue} is open to other users" in warned["detail"]
    assert mode(queue) == 0o755
    queue.chmod(0o700)
    with primary(tmp_path / "state", tokenizer, ServiceOptions(queue_folder=queue)) as running:
        assert "warning" not in json.dumps(running.log())
