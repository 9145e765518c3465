"""Guard examples that a state goes on without, as when one of them is to be forgotten."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import tiny
from tests.integration.commands import run_main
from tfrnet.core.errors import InputError, StateError
from tfrnet.core.signing import make_key
from tfrnet.data.examples import Example
from tfrnet.data.requests import Request
from tfrnet.export.origin import origin_of
from tfrnet.method_state import verify_state
from tfrnet.pretrained import TFRNet
from tfrnet.session import Session
from tfrnet.state import ledger
from tfrnet.state.certificate import make_certificate
from tfrnet.state.digests import example_digest
from tfrnet.state.repair import opened_for_repair
from tfrnet.state.store import StateStore
from tfrnet_bench.report import make_report

RETAIN = tiny.examples(12)
FIRST, SECOND, THIRD = tiny.requests(3)
SMALL = tiny.deep(guard_examples=6, retain_examples=6, steps=1)

Opened = Callable[..., Session]


@pytest.fixture(scope="module")
def trained():
    return tiny.make_trained_model()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def opened(trained, tokenizer, folder: Path) -> Opened:
    def open_with(retain=RETAIN, **options) -> Session:
        return Session(trained, tokenizer, folder, retain, config=SMALL, **options)

    return open_with


def without(*lost):
    return [example for example in RETAIN if example not in lost]


def entries(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]


def test_what_was_drawn_into_the_guard_can_be_forgotten(opened: Opened, folder: Path) -> None:
    with opened() as session:
        session.forget(FIRST)
        lost = session.unlearner.guard[2]
        rest = [example for example in session.unlearner.guard if example != lost]
    asked = Request("theirs", (lost,))
    with opened() as session, pytest.raises(InputError, match="overlaps"):
        session.forget(asked)
    with opened(without(lost), retire_guard=1) as session:
        assert session.unlearner.guard == rest and len(session.retiring) == 1
        assert session.forget(asked).accepted
        assert not session.retiring
        key = session.store.key()
    line = entries(folder)[2]
    assert (line["kind"], line["retired"]) == ("guard", [example_digest(lost, key)])
    assert line["generation"] == 1 and line["totals"] == entries(folder)[1]["totals"]
    assert lost.answer not in (folder / "ledger.jsonl").read_text()
    assert all(check.passed for check in verify_state(folder))


def test_nothing_is_written_until_a_request_is_judged(opened: Opened, folder: Path) -> None:
    with opened() as session:
        session.forget(FIRST)
        lost = session.unlearner.guard[2]
    before = (folder / "ledger.jsonl").read_bytes()
    with opened(without(lost), retire_guard=1) as session, pytest.raises(InputError):
        session.forget(Request("kept", (session.unlearner.retain[0],)))
    assert (folder / "ledger.jsonl").read_bytes() == before
    with opened() as session:
        assert lost in session.unlearner.guard


@pytest.mark.parametrize("told", [0, 1, 3])
def test_another_number_than_was_told_is_refused(opened: Opened, folder: Path, told: int) -> None:
    """As with a file that is too short, or of somebody else."""
    with opened() as session:
        session.forget(FIRST)
        guard = session.unlearner.guard
    with pytest.raises(InputError, match=r"^2 of the 6 guard examples .* --retire-guard 2 "):
        opened(without(*guard[:2]), retire_guard=told)
    with opened() as session:
        assert session.unlearner.guard == guard


def test_the_guard_is_measured_anew_and_drift_counts_from_the_same_examples(
    opened: Opened, folder: Path
) -> None:
    with opened() as session:
        session.forget(FIRST)
        lost = session.unlearner.guard[0]
    with opened(without(lost), retire_guard=1) as session:
        net = session.unlearner
        assert net.untouched_guard_loss is None
        with net.showing(net.state):
            now = net._mean_loss(net._guard_encoded)
        with net.untouched():
            untouched = net._mean_loss(net._guard_encoded)
        outcome = session.forget(SECOND)
    assert outcome.guard_loss_before == pytest.approx(now, rel=1e-6)
    *_, guard_line, last = entries(folder)
    assert "guard_loss" not in guard_line["measures"]
    assert last["guard_loss_untouched"] == pytest.approx(untouched, rel=1e-6)
    assert last["guard_loss_untouched"] != entries(folder)[1]["guard_loss_untouched"]
    store = StateStore.open(folder)
    assert store.measures == store.history.measures
    assert store.measures["guard_loss_untouched"] == last["guard_loss_untouched"]
    (measured,) = origin_of(store, store.generation).requests[-1:]
    assert measured.guard_loss_untouched == last["guard_loss_untouched"]
    assert outcome.accepted
    assert store.measures["guard_loss"] == outcome.guard_loss_after


def retire_first(opened: Opened) -> Example:
    """Forget two requests, the second without the first guard example, which is returned."""
    with opened() as session:
        session.forget(FIRST)
        lost = session.unlearner.guard[0]
    with opened(without(lost), retire_guard=1) as session:
        session.forget(SECOND)
    return lost


def test_it_stays_out_when_it_is_back_in_the_data_and_after_a_rollback(
    opened: Opened, folder: Path
) -> None:
    lost = retire_first(opened)
    lines = len(entries(folder))
    # As when the same command is given again.
    with opened(without(lost), retire_guard=1) as session:
        assert len(entries(folder)) == lines and not session.retiring
    with opened() as session:
        assert lost not in session.unlearner.guard
        session.rollback(0)
        session.forget(THIRD)
    with opened(without(lost)) as session:
        assert len(session.unlearner.guard) == 5
        assert session.unlearner.untouched_guard_loss is not None
    assert all(check.passed for check in verify_state(folder))


@pytest.mark.parametrize("damaged", [1, 3])
def test_a_repair_keeps_it_out(opened: Opened, folder: Path, damaged: int) -> None:
    """Also where the line that retired it comes after the damage."""
    lost = retire_first(opened)
    break_line(folder, damaged)
    with opened_for_repair(folder) as repair:
        repair.carry_out()
    assert entries(folder)[-1]["kind"] == "repair"
    with opened(without(lost)) as session:
        assert len(session.unlearner.guard) == 5


def test_a_repair_says_that_what_is_lost_may_be_a_retirement(opened: Opened, folder: Path) -> None:
    lost = retire_first(opened)
    break_line(folder, 2)
    with opened_for_repair(folder) as repair:
        assert any("guard examples retired by them" in each for each in repair.plan.lost)
        repair.carry_out()
    with pytest.raises(InputError, match="--retire-guard 1 "):
        opened(without(lost))


def break_line(folder: Path, number: int) -> None:
    """Make a line of the ledger, from 0, unreadable."""
    ledger = folder / "ledger.jsonl"
    lines = ledger.read_bytes().splitlines(keepends=True)
    lines[number] = b"{broken\n"
    ledger.write_bytes(b"".join(lines))


def test_with_less_than_half_of_the_first_guard_it_is_refused(opened: Opened, folder: Path) -> None:
    with opened() as session:
        session.forget(FIRST)
        guard = session.unlearner.guard
    with opened(without(*guard[:2]), retire_guard=2) as session:
        session.forget(SECOND)
    before = (folder / "ledger.jsonl").read_bytes()
    with pytest.raises(InputError, match=r"only 2 of the first 6 guard examples .* a new state"):
        opened(without(*guard[:4]), retire_guard=4)
    # What would be refused is not advised.
    with pytest.raises(InputError, match=r"^2 of the 4 guard examples .*\(more may be added\)$"):
        opened(without(*guard[:4]))
    assert (folder / "ledger.jsonl").read_bytes() == before
    with opened(without(*guard[:3]), retire_guard=3) as session:
        assert session.unlearner.guard == guard[3:]


def test_the_number_counts_all_so_a_command_that_stays_retires_nothing_more(
    opened: Opened, folder: Path
) -> None:
    lost = retire_first(opened)
    with opened(without(lost)) as session:
        other = session.unlearner.guard[0]
    with pytest.raises(InputError, match=r"^1 of the 5 guard examples .* --retire-guard 2 "):
        opened(without(lost, other), retire_guard=1)
    with pytest.raises(InputError, match=r"^--retire-guard 2: .* 1 are retired, and no other "):
        opened(without(lost), retire_guard=2)
    with opened(without(lost, other), retire_guard=2) as session:
        assert session.forget(THIRD).guard_loss_before > 0
    assert [len(each["retired"]) for each in entries(folder) if each["kind"] == "guard"] == [1, 1]


@pytest.mark.parametrize(
    ("line", "message", "retired"),
    [
        (1, r"; the retirement of guard examples \(the request after it .*\) was not applied", 0),
        (2, r"; 'request-1' was not applied", 1),
    ],
)
def test_a_full_disk_at_either_of_the_two_lines(
    opened: Opened, folder: Path, monkeypatch, line: int, message: str, retired: int
) -> None:
    with opened() as session:
        session.forget(FIRST)
        lost = session.unlearner.guard[0]
    tried = []

    def append(*given) -> None:
        tried.append(given)
        if len(tried) == line:
            raise OSError(errno.ENOSPC, "No space left on device")
        written(*given)

    written = ledger.append
    with opened(without(lost), retire_guard=1) as session:
        monkeypatch.setattr(ledger, "append", append)
        with pytest.raises(StateError, match=message):
            session.forget(SECOND)
        monkeypatch.undo()
    assert len(StateStore.open(folder).history.retired) == retired
    with opened(without(lost), retire_guard=1) as session:
        session.forget(SECOND)
        assert len(session.unlearner.guard) == 5
    assert [each["kind"] for each in entries(folder)] == ["created", "request", "guard", "request"]


def test_a_new_state_has_none_to_retire(opened: Opened, folder: Path) -> None:
    with pytest.raises(InputError, match="a new state has no guard examples"):
        opened(retire_guard=1)
    assert not folder.exists()


def test_only_guard_examples_can_be_retired(opened: Opened, folder: Path) -> None:
    opened().close()
    store = StateStore.open(folder, write=True)
    try:
        for digests in ([], ["0" * 64], [*store.guard[:1], "0" * 64]):
            with pytest.raises(InputError, match="must be among those of the state"):
                store.retire_guard(digests)
    finally:
        store.close()
    assert len(entries(folder)) == 1


def test_a_certificate_tells_how_many_examples_judged_its_request(
    opened: Opened, folder: Path, tmp_path: Path
) -> None:
    key = make_key(tmp_path / "signing.pem")
    with opened(key=tmp_path / "signing.pem") as session:
        session.forget(FIRST)
        lost = session.unlearner.guard[0]
    with opened(without(lost), retire_guard=1, key=tmp_path / "signing.pem") as session:
        session.forget(SECOND)
    store = StateStore.open(folder)
    told = [
        make_certificate(store.manifest, store.entries, request.id, "now", key)["guard"]["examples"]
        for request in (FIRST, SECOND)
    ]
    assert told == [6, 5]


def test_a_state_in_memory_goes_on_without_it_too(
    opened: Opened, folder: Path, trained, tokenizer
) -> None:
    with opened() as session:
        session.forget(FIRST)
        lost = session.unlearner.guard[0]
    with pytest.raises(InputError, match=r"1 of the 6 .* first retired on disk: 'tfrnet forget "):
        TFRNet.from_pretrained(trained, folder, tokenizer=tokenizer, retain=without(lost))
    with opened(without(lost), retire_guard=1) as session:
        session.forget(SECOND)
    net = TFRNet.from_pretrained(trained, folder, tokenizer=tokenizer, retain=without(lost))
    try:
        assert len(net.guard) == 5
        assert net.forget(THIRD).guard_loss_before > 0
    finally:
        net.detach()


def test_the_report_says_where_the_guard_changed(opened: Opened, folder: Path) -> None:
    retire_first(opened)
    page = make_report(folder).html
    assert ": 1. Guard losses before and after that are of different examples" in page
    assert "<dt>guard examples</dt><dd>5</dd>" in page


def test_the_command_says_how_many_are_left_and_history_shows_it(
    tmp_path: Path, tiny_folder: Path, capsys: pytest.CaptureFixture
) -> None:
    state, retain = tmp_path / "state", tmp_path / "retain.jsonl"

    def forget(request, examples, *more: object) -> int:
        retain.write_text("".join(json.dumps(row(each)) + "\n" for each in examples))
        file = tmp_path / "request.json"
        asked = {"id": request.id, "examples": [row(each) for each in request.examples]}
        file.write_text(json.dumps(asked))
        files = ("--request", file, "--retain", retain, "--state", state, "--model", tiny_folder)
        return run_main(("forget", *files, "--set", "guard_examples=6", "--no-audit", *more))

    def row(example):
        return {"prompt": example.prompt, "answer": example.answer}

    assert forget(FIRST, RETAIN) in (0, 1)
    store = StateStore.open(state)
    drawn = set(store.guard)
    lost = next(each for each in RETAIN if example_digest(each, store.key()) in drawn)
    capsys.readouterr()
    assert forget(SECOND, without(lost)) == 2
    assert "--retire-guard" in capsys.readouterr().err
    assert forget(SECOND, without(lost), "--retire-guard", 1) in (0, 1)
    assert "retired with the next request: 1; 5 are left" in " ".join(
        capsys.readouterr().err.split()
    )
    assert run_main(("history", "--state", state)) == 0
    assert "guard examples no longer used: 1" in capsys.readouterr().out
    assert run_main(("status", "--state", state, "--json")) == 0
    assert json.loads(capsys.readouterr().out)["guard_examples"] == 5
