"""A stream on a model goes on to the same bits after every fault."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests import tiny
from tests.state.faults.strike import (
    COMMIT,
    LINE_WRITTEN,
    assert_sound,
    ctrl_c,
    disk_full,
    killed_in_child,
    points,
    struck,
    tensors,
)
from tests.state.made_up import (
    is_equal,
)
from tfrnet.core.errors import StateError
from tfrnet.session import Session
from tfrnet.state.store import StateStore

SMALL = tiny.deep(guard_examples=4, retain_examples=4, steps=1, max_length=16)
STREAM = tiny.requests(3, size=2)


@pytest.fixture(scope="module")
def model():
    return tiny.make_model("llama")


def session_on(model, tokenizer, folder: Path) -> Session:
    return Session(model, tokenizer, folder, tiny.examples(12), config=SMALL, batch_size=4)


@pytest.fixture(scope="module")
def undisturbed(model, tokenizer, tmp_path_factory) -> Path:
    """The state of an undisturbed run; beside it, in `first`, that after the first request."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("undisturbed") / "state"
    with session_on(model, tokenizer, folder) as session:
        assert session.forget(STREAM[0]).accepted
        shutil.copytree(folder, folder.with_name("first"))
        assert [outcome.accepted for outcome in session.run(STREAM)] == [True] * 2
    return folder


@pytest.fixture
def open_session(model, tokenizer, undisturbed: Path, tmp_path: Path) -> Callable[[], Session]:
    """Opens a session on a state that has seen the first request."""
    shutil.copytree(undisturbed.with_name("first"), tmp_path / "state")
    return lambda: session_on(model, tokenizer, tmp_path / "state")


@pytest.mark.slow
@pytest.mark.parametrize(("number", "half"), points(COMMIT))
def test_a_stream_killed_in_mid_commit_resumes_to_the_same_bits(
    tmp_path: Path, open_session, undisturbed: Path, number: int, half: bool
) -> None:
    whole = StateStore.open(undisturbed)

    def work() -> None:
        # Torch cannot compute in a forked process: it commits what a whole run computed.
        with StateStore.open(tmp_path / "state", write=True) as store:
            added = ("hash", "previous", "kind", "time", "generation")
            record = {k: v for k, v in whole.entries[2].items() if k not in added}
            store.commit(record, whole.load(2))

    assert killed_in_child(work, number, half)
    with open_session() as session:
        assert session.store.generation == (2 if number > LINE_WRITTEN else 1)
        list(session.run(STREAM))
    assert_sound(tmp_path / "state")
    assert tensors(tmp_path / "state") == tensors(undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "half"), points(COMMIT))
def test_a_session_goes_on_after_a_full_disk_to_the_same_bits(
    tmp_path: Path, open_session, undisturbed: Path, number: int, half: bool
) -> None:
    with open_session() as session:
        with struck(number, half, disk_full), pytest.raises(StateError) as caught:
            session.forget(STREAM[1])
        assert session.is_applied(STREAM[1]) == ("is applied" in str(caught.value))
        assert torch.equal(session.unlearner.state.mask, session.store.load().tensors()["mask"])
        list(session.run(STREAM))
    assert_sound(tmp_path / "state")
    assert tensors(tmp_path / "state") == tensors(undisturbed)


@pytest.mark.parametrize("number", range(len(COMMIT)))
def test_a_session_never_disagrees_with_its_disk_after_a_failed_rollback(
    open_session, number: int
) -> None:
    with open_session() as session:
        with struck(number, False, disk_full), pytest.raises(StateError):
            session.rollback(0)
        on_disk = session.store.load()
        assert is_equal(session.unlearner.state, on_disk)
        assert torch.equal(session.unlearner.mask.values.cpu(), on_disk.tensors()["mask"])


def test_ctrl_c_between_commit_and_memory_does_not_undo_the_request(
    open_session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit is on disk and the interrupt comes before the session knows."""
    with open_session() as session:
        monkeypatch.setattr(session.unlearner, "adopt", lambda proposal: ctrl_c())
        with pytest.raises(KeyboardInterrupt):
            session.forget(STREAM[1])
        assert session.is_applied(STREAM[1])
        assert is_equal(session.unlearner.state, session.store.load())
        assert session.unlearner.requests_seen == 2
