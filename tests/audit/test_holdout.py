"""Hold-out data: measured at every request, and used for nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests import tiny
from tfrnet.core.errors import InputError
from tfrnet.data.examples import Example
from tfrnet.models.forward import evaluate_losses
from tfrnet.session import Session
from tfrnet.state.store import StateStore

RETAIN = tiny.examples(12)
HOLDOUT = tiny.examples(5, offset=500)
STREAM = tiny.requests(3)
SMALL = tiny.deep(guard_examples=6, retain_examples=6, steps=1)


@pytest.fixture(scope="module")
def model():
    return tiny.make_model("llama")


def open_session(model, tokenizer, folder: Path, **options) -> Session:
    return Session(model, tokenizer, folder, RETAIN, **({"config": SMALL} | options))


def mean_loss(session: Session) -> float:
    encoded = session.unlearner.encode(HOLDOUT, "test")
    return float(evaluate_losses(session.unlearner.model, encoded, 2).mean())


def test_each_request_says_what_became_of_it(model, tokenizer, tmp_path: Path) -> None:
    with open_session(model, tokenizer, tmp_path / "state", holdout=HOLDOUT) as session:
        untouched = before = mean_loss(session)
        for request in STREAM:
            outcome = session.forget(request)
            assert outcome.accepted
            after = mean_loss(session)
            assert outcome.holdout["examples"] == 5
            assert outcome.holdout["loss_untouched"] == pytest.approx(untouched, rel=1e-5)
            assert outcome.holdout["loss_before"] == pytest.approx(before, rel=1e-5)
            assert outcome.holdout["loss_after"] == pytest.approx(after, rel=1e-5)
            assert outcome.seconds["audit"] <= outcome.seconds["total"]
            before = after
        assert after != pytest.approx(untouched, rel=1e-5)
        session.rollback(1)
        assert session.forget(STREAM[1]).holdout["loss_before"] == pytest.approx(
            session.store.history.holdouts[1]["loss_after"], rel=1e-5
        )


def test_no_step_and_no_guard_knows_of_it(model, tokenizer, tmp_path: Path) -> None:
    digests = []
    for name, holdout in (("without", ()), ("with", HOLDOUT)):
        with open_session(model, tokenizer, tmp_path / name, holdout=holdout) as session:
            assert all(outcome.accepted for outcome in session.run(STREAM))
            digests.append(session.store.position.digest)
    assert digests[0] == digests[1]


def test_the_ledger_holds_numbers_and_a_keyed_digest(model, tokenizer, tmp_path: Path) -> None:
    with open_session(model, tokenizer, tmp_path / "state", holdout=HOLDOUT) as session:
        session.forget(STREAM[0])
    with open_session(model, tokenizer, tmp_path / "state", holdout=HOLDOUT[::-1]) as session:
        resumed = session.forget(STREAM[1]).holdout
    with open_session(model, tokenizer, tmp_path / "state") as session:
        assert not session.forget(STREAM[2]).holdout
    lines = (tmp_path / "state" / "ledger.jsonl").read_text().splitlines()
    first, second, third = (json.loads(line) for line in lines[1:])
    assert first["holdout"]["digest"] == second["holdout"]["digest"]
    assert "holdout" not in third
    assert resumed["loss_untouched"] == pytest.approx(first["holdout"]["loss_untouched"])
    values = {name: value for name, value in first["holdout"].items() if name != "digest"}
    assert all(isinstance(value, (int, float)) for value in values.values())
    history = StateStore.open(tmp_path / "state").history
    assert set(history.holdouts) == {1, 2}  # not measured since


def test_a_rejected_request_leaves_it_where_it_was(
    model, tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_session(model, tokenizer, tmp_path / "state", holdout=HOLDOUT) as session:
        net = session.unlearner
        real, present = net._losses, net.state.mask.clone()
        monkeypatch.setattr(
            net,
            "_losses",
            lambda e: real(e) + (0.0 if torch.equal(net.mask.values, present) else 100.0),
        )
        outcome = session.forget(STREAM[0])
    assert not outcome.accepted
    assert outcome.holdout["loss_after"] == outcome.holdout["loss_before"]


@pytest.mark.parametrize(
    ("holdout", "options", "message"),
    [
        ([RETAIN[3]], {}, "hold-out data overlaps retain data: line 1 of the hold-out data is"),
        ([Example("G", "g")], {"guard": [Example("G", "g")]}, "overlaps guard data"),
    ],
)
def test_data_that_is_used_is_no_holdout(
    model, tokenizer, tmp_path: Path, holdout, options, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        open_session(model, tokenizer, tmp_path / "state", holdout=holdout, **options)
    assert not (tmp_path / "state").exists()
    # Nothing is left on the model either.
    open_session(model, tokenizer, tmp_path / "other").close()


def test_a_request_in_the_holdout_is_refused(model, tokenizer, tmp_path: Path) -> None:
    holdout = [*HOLDOUT, STREAM[0].examples[0]]
    with open_session(model, tokenizer, tmp_path / "state", holdout=holdout) as session:
        for forget in (session.forget, lambda request: list(session.run([request]))):
            with pytest.raises(InputError, match="hold-out data overlaps request 'request-0'"):
                forget(STREAM[0])
        assert session.store.generation == 0
