"""Requests that the ledger knew before the queue did: how they are said to have ended."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests import tiny
from tests.serve.running import make_session, primary
from tests.states import story
from tfrnet.session import Session
from tfrnet.state.repair import opened_for_repair

REQUESTS = tiny.requests(3, size=2)


def reject(session: Session, number: int) -> None:
    """Have the guard refuse a request, whatever comes of it."""
    observer: Any = session._observer
    real = observer.propose

    def refused(*given: Any) -> Any:
        proposal = real(*given)
        return replace(
            proposal, outcome=replace(proposal.outcome, outcome="rejected", reason="too much")
        )

    observer.propose = refused
    session.forget(REQUESTS[number])
    observer.propose = real


def test_what_was_rejected_and_later_accepted_and_undone_is_rejected(
    tmp_path: Path, tokenizer
) -> None:
    with make_session(tmp_path / "state", tokenizer) as session:
        reject(session, 0)
        session.forget(REQUESTS[0])
        session.rollback(0)
        assert session.was_rejected(REQUESTS[0])
    with primary(tmp_path / "state", tokenizer) as running:
        running.submit(REQUESTS[0])
        ended = running.ended("request-0")
        assert (ended["state"], ended["reason"]) == ("rejected", "too much")
        assert (ended["outcome"]["line"], ended["in_force"]) == (2, None)


def test_what_is_applied_and_was_rejected_in_a_way_that_was_left_is_completed(
    tmp_path: Path, tokenizer
) -> None:
    with make_session(tmp_path / "state", tokenizer) as session:
        session.forget(REQUESTS[0])
        session.rollback(0)
        reject(session, 0)
        session.rollback(1)
    with primary(tmp_path / "state", tokenizer) as running:
        running.submit(REQUESTS[0])
        ended = running.ended("request-0")
        assert (ended["state"], ended["outcome"]["line"]) == ("completed", 2)
        assert ended["in_force"] is True


@pytest.mark.parametrize("outcome", ["accepted", "rejected"])
def test_a_request_whose_line_a_repair_has_lost_does_not_hold_up_the_queue(
    tmp_path: Path, tokenizer, outcome: str
) -> None:
    state = tmp_path / "state"
    with make_session(state, tokenizer) as session:
        session.forget(REQUESTS[0])
        if outcome == "rejected":
            reject(session, 1)
        session.forget(REQUESTS[1 if outcome == "accepted" else 2])
    ledger = state / "ledger.jsonl"
    ledger.write_bytes(ledger.read_bytes().replace(b'"request-0"', b'"request-x"', 1))
    with opened_for_repair(state) as repair:
        repair.carry_out()
    (repaired,) = story(state)
    known = repaired["applied" if outcome == "accepted" else "rejected"]
    assert list(known) == ["request-1"]
    with primary(state, tokenizer) as running:
        running.submit(REQUESTS[1])
        ended = running.ended("request-1")
        assert ended["state"] == {"accepted": "completed"}.get(outcome, outcome)
        assert (ended["outcome"], ended["audit"]) == (None, "")
        assert "a repair has lost its line" in ended["reason"]
        assert running.client.get("/v1/requests/request-1/certificate").status_code == 409
        running.submit(REQUESTS[0])
        assert running.ended("request-0")["state"] == "completed"
        assert [line for line in running.log() if "error" in line] == []
