"""The limit on the total drift of a stream, in a session and on the command line."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path

import pytest

from tests import tiny
from tfrnet.core.errors import InputError, TfrnetWarning
from tfrnet.method_state import drift_of, settings_of
from tfrnet.methods.npo.config import NPOConfig
from tfrnet.methods.tfr.config import TFRConfig
from tfrnet.methods.tfr.model import TFRNet
from tfrnet.session import Session
from tfrnet.state.store import StateStore

RETAIN = tiny.examples(12)
GUARD = tiny.examples(6, offset=100)
STREAM = tiny.requests(4)
# No step holds the guard examples, so that their loss moves; each request may raise it freely.
LOOSE = tiny.deep(
    guard_examples=6, retain_examples=6, steps=2, hold_guard=False, guard_relative=5.0
)


@pytest.fixture(scope="module")
def model():
    return tiny.make_trained_model()


def open_session(model, tokenizer, folder: Path, config=LOOSE, **options) -> Session:
    return Session(model, tokenizer, folder, RETAIN, guard=GUARD, config=config, **options)


def limited(limit: float | None) -> TFRConfig:
    return LOOSE.with_overrides([f"drift_limit={limit}"])


@pytest.fixture(scope="module")
def drifted(model, tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state without a limit, after two requests."""
    folder = tmp_path_factory.mktemp("drift") / "state"
    with open_session(model, tokenizer, folder, limited(None)) as session:
        assert all(outcome.accepted for outcome in session.run(STREAM[:2]))
    return folder


def ratio(folder: Path) -> float:
    drift = drift_of(StateStore.open(folder))
    assert drift is not None
    return drift.ratio


def test_the_drift_counts_from_the_untouched_model(drifted: Path) -> None:
    lines = [json.loads(line) for line in (drifted / "ledger.jsonl").read_text().splitlines()]
    first, last = lines[1], lines[-1]
    assert ratio(drifted) == last["guard_loss_after"] / first["guard_loss_before"] > 1
    assert {line["guard_loss_untouched"] for line in lines[1:]} == {first["guard_loss_before"]}


def test_a_request_beyond_the_limit_is_refused(
    model, tokenizer, drifted: Path, tmp_path: Path
) -> None:
    limit = 1 + (ratio(drifted) - 1) / 2
    with open_session(model, tokenizer, tmp_path / "state", limited(limit)) as session:
        outcomes = list(session.run(STREAM[:2]))
        untouched = session.store.history.guard_losses[0]
    # What the limit leaves room for is used, and not more.
    for outcome in outcomes:
        if outcome.accepted:
            assert outcome.guard_loss_after <= limit * untouched
        else:
            assert "of the whole stream (drift_limit)" in outcome.reason
    assert ratio(tmp_path / "state") <= limit


def test_a_limit_that_is_not_reached_changes_nothing(
    model, tokenizer, drifted: Path, tmp_path: Path
) -> None:
    with open_session(model, tokenizer, tmp_path / "state", limited(1000.0)) as session:
        list(session.run(STREAM[:2]))
        assert session.store.position.digest == StateStore.open(drifted).position.digest


def test_a_limit_below_what_is_used_already_is_one_clear_line(
    model, tokenizer, drifted: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(drifted, tmp_path / "state"))
    ledger = (folder / "ledger.jsonl").read_bytes()
    limit = 1 + (ratio(drifted) - 1) / 2
    with (
        open_session(model, tokenizer, folder, limited(limit)) as session,
        pytest.raises(InputError, match=r"nothing was changed: guard loss .* 200 % of drift_limit"),
    ):
        session.forget(STREAM[2])
    assert (folder / "ledger.jsonl").read_bytes() == ledger


def test_there_is_a_warning_before_it_is_reached(
    model, tokenizer, drifted: Path, tmp_path: Path
) -> None:
    limit = 1 + (ratio(drifted) - 1) / 0.9
    with (
        open_session(model, tokenizer, tmp_path / "state", limited(limit)) as session,
        pytest.warns(TfrnetWarning, match="90 % of drift_limit .* used up"),
    ):
        assert all(outcome.accepted for outcome in session.run(STREAM[:2]))


def test_a_state_made_before_there_was_a_limit_has_none(drifted: Path, tmp_path: Path) -> None:
    manifest = StateStore.open(drifted).manifest
    older = {name: value for name, value in manifest.config.items() if name != "drift_limit"}
    settings = settings_of(type(manifest)(**vars(manifest) | {"config": older}))
    assert settings.to_dict()["drift_limit"] is None
    assert TFRConfig().drift_limit == NPOConfig().drift_limit == 3.0


def test_an_imported_state_measures_the_untouched_model(
    model, tokenizer, drifted: Path, tmp_path: Path
) -> None:
    mask = StateStore.open(drifted).load().tensors()["mask"]
    with open_session(model, tokenizer, tmp_path / "state", limited(None)) as session:
        session.take_in({"mask": mask}, {"from": "elsewhere"})
        session.forget(STREAM[2])
        found = session.store.history.guard_losses[0]
    assert found == pytest.approx(StateStore.open(drifted).history.guard_losses[0])


def test_without_a_session_nothing_limits_the_stream(model, tokenizer) -> None:
    """The experiments run in memory: no limit may change their results."""
    config = limited(1.0)
    net = TFRNet(model, tokenizer, RETAIN, config, guard=GUARD)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            outcome = net.forget(STREAM[0])
    finally:
        net.detach()
    assert outcome.accepted
    assert outcome.guard_loss_after > outcome.guard_loss_before
    assert config.filed_under() == limited(None).filed_under() == LOOSE.filed_under()
