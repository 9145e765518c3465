"""A state is opened once for a command, and is the command's until it ends."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import typer

from tests import tiny
from tests.integration.commands import FAST, Files, Tfrnet
from tfrnet.cli import opening
from tfrnet.cli.app import build_app
from tfrnet.cli.options import SessionOptions
from tfrnet.core.errors import InputError, StateError
from tfrnet.session import Session
from tfrnet.state.store import StateStore

# The lock alone needs no torch, so that the second process starts at once.
_OTHER_PROCESS = """
import sys
from pathlib import Path
from tfrnet.core.errors import StateError
from tfrnet.core.lock import FolderLock
try:
    FolderLock(Path(sys.argv[1]))
except StateError as error:
    sys.exit(f"refused: {error}")
"""


def ask_another_process(folder: Path) -> str:
    """Return what another process is told that wants to write to a state; nothing if it may."""
    command = [sys.executable, "-c", _OTHER_PROCESS, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


@pytest.fixture
def openings(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Every opening of a state, and whether it was for writing."""
    found: list[bool] = []
    real = StateStore.open.__func__

    def counted(cls, folder: Path, write: bool = False, **more) -> StateStore:
        found.append(write)
        return real(cls, folder, write, **more)

    monkeypatch.setattr(StateStore, "open", classmethod(counted))
    return found


@pytest.mark.parametrize("more", [[], ["--set", "steps=1"], ["--guarded"]])
def test_a_state_is_opened_once_and_locked_while_the_model_loads(
    tfrnet: Tfrnet, files: Files, openings: list[bool], monkeypatch, more: list[str]
) -> None:
    told = []
    load = opening.load

    def slow(*arguments, **named):
        told.append(ask_another_process(files.state))
        return load(*arguments, **named)

    monkeypatch.setattr(opening, "load", slow)
    options = ["--retain", files.retain, "--state", files.state, "--device", "cpu", *more]
    assert tfrnet("forget", "--request", files.request, *options).code == 0
    assert openings == [True]
    assert len(told) == 1 and f"refused: state {files.state} is in use by process" in told[0]
    assert ask_another_process(files.state) == ""


def test_a_model_that_cannot_be_loaded_leaves_the_state_free(tfrnet: Tfrnet, files: Files) -> None:
    options = [*files.opening(), "--model", "./no-such-model"]
    assert "does not exist" in tfrnet("run", "--stream", files.stream, *options).error
    assert ask_another_process(files.state) == ""


def test_a_session_takes_a_state_that_is_open(files: Files, tokenizer) -> None:
    retain = tiny.examples(10)
    with pytest.raises(StateError, match="opened for writing first"):
        Session(tiny.make_model(), tokenizer, StateStore.open(files.state), retain)
    store = StateStore.open(files.state, write=True)
    with Session(tiny.make_model(), tokenizer, store, retain) as session:
        assert session.store is store
        assert session.forget(tiny.requests(3, size=2)[2]).accepted
    assert not store.is_writable
    # A state that turns out to be another's is let go of too.
    store = StateStore.open(files.state, write=True)
    with pytest.raises(StateError, match="another base model"):
        Session(tiny.make_model(seed=1), tokenizer, store, retain)
    assert not store.is_writable


def test_forget_and_run_take_the_same_options() -> None:
    commands = typer.main.get_command(build_app()).commands
    taken = {name: [p.name for p in commands[name].params] for name in ("forget", "run")}
    shared = [field.name for field in fields(SessionOptions)]
    assert taken["forget"] == ["request", *shared, "full", "as_json"]
    assert taken["run"] == ["stream", *shared, "retry_rejected", "full", "as_json"]
    required = {p.name for p in commands["run"].params if p.required}
    assert required == {"stream"}


def test_the_place_of_a_new_state_is_locked_while_the_model_loads(
    tfrnet: Tfrnet, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise two runs could both load for minutes, and one of them for nothing."""
    new, told, load = tmp_path / "new", [], opening.load

    def slow(*arguments, **named):
        told.append(ask_another_process(new))
        return load(*arguments, **named)

    monkeypatch.setattr(opening, "load", slow)
    request = ["forget", "--request", files.request, *files.opening(new)]
    assert tfrnet(*request, *FAST).code == 0
    assert f"refused: state {new} is in use by process" in told[0]
    assert ask_another_process(new) == ""


@pytest.mark.parametrize("existed", [False, True])
def test_a_request_that_is_refused_leaves_no_new_state(
    tfrnet: Tfrnet, files: Files, tmp_path: Path, existed: bool
) -> None:
    """It would be bound to settings, a model and a guard with which nothing was ever done."""
    new = tmp_path / "new"
    if existed:
        new.mkdir()
    options = [*files.opening(new), "--set", "max_length=3", *FAST]
    refused = tfrnet("forget", "--request", files.request, *options)
    assert (refused.code, "max_length" in refused.error) == (2, True)
    assert not StateStore.exists(new)
    assert new.exists() == existed
    assert tfrnet("forget", "--request", files.request, *files.opening(new), *FAST).code == 0


def test_a_model_that_cannot_be_loaded_leaves_no_folder(
    tfrnet: Tfrnet, files: Files, tmp_path: Path
) -> None:
    options = [*files.opening(tmp_path / "new"), "--model", "./no-such-model"]
    assert tfrnet("run", "--stream", files.stream, *options).code == 2
    assert not (tmp_path / "new").exists()


def test_an_error_after_the_first_commit_leaves_the_state(
    files: Files, tokenizer, tmp_path: Path
) -> None:
    with (
        pytest.raises(InputError),
        Session(tiny.make_model(), tokenizer, tmp_path / "new", tiny.examples(10)) as session,
    ):
        session.forget(tiny.requests(1, size=2)[0])
        raise InputError("another request is refused")
    assert StateStore.open(tmp_path / "new").position.seen == 1


def test_export_and_generate_open_the_state_once(
    tfrnet: Tfrnet, files: Files, openings: list[bool], tmp_path: Path
) -> None:
    for command in (["export", "--out", tmp_path / "out"], ["generate", "--prompt", "x"]):
        openings.clear()
        assert tfrnet(*command, "--state", files.state).code == 0
        assert openings == [False]
