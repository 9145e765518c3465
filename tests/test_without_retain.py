"""A state without retain data: the model's own text stands in for them, written once and kept."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import tiny
from tests.states import story, tensors
from tfrnet import TFRNet
from tfrnet import session as session_module
from tfrnet.core.errors import InputError, StateError
from tfrnet.data.anchors import without_answers
from tfrnet.data.examples import Example
from tfrnet.data.requests import Request
from tfrnet.method_state import own_text_of, verify_state
from tfrnet.models import own_text
from tfrnet.session import Session
from tfrnet.state.store import StateStore

STREAM = tiny.requests(3)
RETAIN = tiny.examples(12)
SMALL = tiny.deep(guard_examples=6, retain_examples=6, steps=1)


@pytest.fixture(scope="module")
def model():
    return tiny.make_trained_model()


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_text, "TEXTS", 12)


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written anew."""

    def refuse(loaded: object) -> None:
        raise AssertionError("the model was asked to write")

    monkeypatch.setattr(session_module, "write_own_text", refuse)


@pytest.fixture
def begun(model, tokenizer, tmp_path: Path) -> Path:
    """A state with one request."""
    with open_session(model, tokenizer, tmp_path / "begun") as session:
        session.forget(STREAM[0])
    return tmp_path / "begun"


def open_session(model, tokenizer, folder: Path, retain=None, **options) -> Session:
    return Session(model, tokenizer, folder, retain, **({"config": SMALL} | options))


def test_requests_are_applied_and_guarded_by_other_lines_than_they_use(
    model, tokenizer, tmp_path: Path
) -> None:
    with open_session(model, tokenizer, tmp_path / "state") as session:
        outcomes = list(session.run(STREAM))
        net = session.unlearner
        assert net.retain
        assert len(net.guard) == 6
        assert not set(net.guard) & set(net.retain)
    assert any(outcome.accepted for outcome in outcomes)
    assert all(check.passed for check in verify_state(tmp_path / "state"))


def test_a_resumed_stream_is_bit_identical_and_nothing_is_written_anew(
    model, tokenizer, tmp_path: Path, begun: Path, silent: None, monkeypatch
) -> None:
    for request in STREAM[1:]:
        with open_session(model, tokenizer, begun) as session:
            session.forget(request)
    monkeypatch.undo()
    monkeypatch.setattr(own_text, "TEXTS", 12)
    with open_session(model, tokenizer, tmp_path / "whole") as session:
        list(session.run(STREAM))
    assert tensors(begun) == tensors(tmp_path / "whole")
    assert story(begun) == story(tmp_path / "whole")


def test_the_state_keeps_the_models_words_and_the_ledger_does_not(begun: Path) -> None:
    store = StateStore.open(begun)
    own = own_text_of(store)
    lines = [*own.retain, *own.guard]
    assert 12 <= len(lines) <= 36
    record = json.loads((begun / "ledger.jsonl").read_text().splitlines()[1])["own_text"]
    used = without_answers(own.retain, STREAM[0])
    assert record["examples"] == len(used) > 0
    assert len(record["digest"]) == 64
    ledger = (begun / "ledger.jsonl").read_text()
    assert not any(line.answer in ledger for line in lines)


def test_a_changed_word_is_noticed(begun: Path) -> None:
    manifest = begun / "manifest.json"
    values = json.loads(manifest.read_text())
    values["own_text"]["retain"][0]["answer"] += " indeed"
    manifest.write_text(json.dumps(values, indent=1, sort_keys=True) + "\n")
    assert not all(check.passed for check in verify_state(begun))
    with pytest.raises(StateError, match="it is not the one that the state was made with"):
        StateStore.open(begun, write=True)


def test_retain_data_that_come_later_are_for_the_steps_and_the_guard_stays(
    model, tokenizer, begun: Path, silent: None
) -> None:
    with open_session(model, tokenizer, begun) as session:
        guard = session.unlearner.guard
    with open_session(model, tokenizer, begun, RETAIN) as session:
        assert session.unlearner.retain == RETAIN
        assert session.unlearner.guard == guard
        session.forget(STREAM[1])
    last = json.loads((begun / "ledger.jsonl").read_text().splitlines()[-1])
    assert "own_text" not in last
    # The same in memory, where a state's guard must be found too.
    net = TFRNet.from_pretrained(model, begun, tokenizer, retain=RETAIN)
    assert net.guard == guard
    net.detach()


def test_a_state_that_began_with_retain_data_needs_them(model, tokenizer, tmp_path: Path) -> None:
    open_session(model, tokenizer, tmp_path / "state", RETAIN).close()
    with pytest.raises(InputError, match=r"was begun with retain data, so it needs them"):
        open_session(model, tokenizer, tmp_path / "state")


def test_a_guard_of_the_users_own_is_used(model, tokenizer, tmp_path: Path) -> None:
    with open_session(model, tokenizer, tmp_path / "state", guard=RETAIN) as session:
        assert set(session.unlearner.guard) <= set(RETAIN)
        assert session.forget(STREAM[0]).guard_loss_before > 0


def test_lines_that_name_an_answer_are_not_held(model, tokenizer, begun: Path) -> None:
    lines = own_text_of(StateStore.open(begun)).retain
    named = [line for line in lines if "white" in line.joined.split()]
    assert 0 < len(named) < len(lines)
    with open_session(model, tokenizer, begun) as session:
        session.forget(Request("named", (Example("What is it?", "white"),)))
        assert session.unlearner.retain == [line for line in lines if line not in named]
        session.forget(Request("not named", (Example("What is it?", "purple"),)))
        assert session.unlearner.retain == lines


def test_where_all_lines_name_an_answer_nothing_is_changed(model, tokenizer, begun: Path) -> None:
    lines = own_text_of(StateStore.open(begun)).retain
    words = sorted({line.prompt.split()[0] for line in lines})
    request = Request("all", tuple(Example("What is it?", word) for word in words))
    with open_session(model, tokenizer, begun) as session:
        with pytest.raises(InputError, match="names an answer of request 'all'; give retain data"):
            session.forget(request)
        assert session.store.generation == 1


def test_several_processes_need_retain_data() -> None:
    with pytest.raises(InputError, match=r"without retain data \(--retain\) a run has one process"):
        session_module._Data.of(None, None, None, None, 0, SimpleNamespace(size=2))
