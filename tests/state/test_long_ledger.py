"""States that have been used for long: thousands of requests, and many undos."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from tests.state.made_up import commit, make_state
from tfrnet.cli.main import main
from tfrnet.core.errors import StateError
from tfrnet.core.signing import SigningKey, read_key
from tfrnet.method_state import verify_state
from tfrnet.state import generation_file, ledger
from tfrnet.state.history import History
from tfrnet.state.pointer import Pointer
from tfrnet.state.store import StateStore

REQUESTS, UNDOS = 10_000, 1_000
# About as much as a line of TFR-Net says.
FILLING = {"top_channels": [[number, 0.123456789 * number] for number in range(60)]}


def _lengthen(
    folder: Path,
    requests: int,
    undos: int,
    of_before: bool = False,
    key: SigningKey | None = None,
) -> None:
    """Write so many requests and undos into a new state's ledger, without tensors.

    `of_before` leaves out what lines say since opening reads the last of them alone; `key` is that
    of a signed state.
    """
    first = ledger.read(folder / "ledger.jsonl").entries[0]
    if of_before:
        newer = ("sequence", "totals", "measures", "oldest", "hash")
        old = {name: value for name, value in first.items() if name not in newer}
        first = ledger.chained(old, ledger.GENESIS)
    history, lines, head = History.of([first]), [ledger.line(first)], first["hash"]
    step = requests // undos
    for number in range(1, requests + undos + 1):
        undo = number % (step + 1) == 0
        record = {"kind": "rollback", "to": history.generation - step // 2}
        if not undo:
            identity = {"id": f"request-{number}", "request_digest": f"{number:064d}"}
            record = {"kind": "request", "outcome": "accepted"} | identity | FILLING
        body = record | {
            "time": first["time"],
            "generation": history.generation + 1,
            "state_before": first["state_after"],
            "state_after": first["state_after"],
        }
        if not of_before:
            totals = history.totals_after(record) if number == requests + undos else {}
            measures = history.measures_after(record)
            oldest = history.generation + 1
            body |= {"sequence": number + 1, "totals": totals, "oldest": oldest}
            body |= {"measures": measures, "state": first["hash"]}
        entry = ledger.chained(body, head, key)
        head = entry["hash"]
        history.advance(entry)
        lines.append(ledger.line(entry))
    (folder / "ledger.jsonl").write_bytes(b"".join(lines))
    Pointer(history.generation, len(lines), head).write(folder / "current.json")
    store_file = folder / "generations" / "00000000.safetensors"
    state = generation_file.parse(store_file.read_bytes(), store_file)
    newest = folder / "generations" / f"{history.generation:08d}.safetensors"
    generation_file.write(newest, state, history.generation)


@pytest.fixture(scope="module")
def long_state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_state(tmp_path_factory.mktemp("long") / "state", commits=0)
    _lengthen(folder, REQUESTS, UNDOS)
    return folder


def _status(folder: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[str, float]:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr(sys, "argv", ["tfrnet", "status", "--state", str(folder), *options])
        begun = time.process_time()
        main()
    taken = time.process_time() - begun
    assert ended.value.code == 0
    return capsys.readouterr().out, taken


def test_status_of_ten_thousand_requests_and_a_thousand_undos_takes_less_than_a_second(
    long_state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _status(make_state(long_state.with_name("small"), 0), capsys)  # what is imported counts apart
    text, taken = _status(long_state, capsys)
    assert "5000 applied, 0 rejected, 10000 seen" in text
    assert taken < 1


@pytest.mark.slow
@pytest.mark.parametrize("is_signed", [False, True])
def test_verify_takes_time_linear_in_the_ledger(tmp_path: Path, is_signed: bool) -> None:
    seconds = []
    for part in (4, 1):  # a quarter, and all
        path = tmp_path / "key.pem" if is_signed else None
        folder = make_state(tmp_path / str(part), commits=0, key=path)
        key = read_key(path) if path else None
        _lengthen(folder, REQUESTS // part, UNDOS // part, key=key)
        begun = time.process_time()
        checks = verify_state(folder)
        seconds.append(time.process_time() - begun)
        assert [check for check in checks if not check.passed] == []
        assert checks[0].detail == f"{(REQUESTS + UNDOS) // part + 1} lines"
    assert seconds[1] < 8 * seconds[0]  # 4 times if it is linear, 16 times if it is quadratic
    assert seconds[1] < 20


def test_opening_reads_the_end_of_a_ledger_and_not_all_of_it(
    long_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "read", lambda *_: pytest.fail("the whole ledger was read"))
    store = StateStore.open(long_state)
    assert (store.lines, store.position.seen) == (REQUESTS + UNDOS + 1, REQUESTS)
    assert store.position.applied == REQUESTS // 2
    store.load()


@pytest.mark.slow
def test_the_history_of_a_long_ledger_agrees_with_its_last_line(
    long_state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = StateStore.open(long_state)
    assert len(store.history.applied) == store.position.applied == REQUESTS // 2
    text, _ = _status(long_state, capsys, "--json")
    assert json.loads(text)["applied"] == list(store.history.applied)


def test_a_long_ledger_of_an_earlier_version_is_opened_in_one_pass(tmp_path: Path) -> None:
    folder = make_state(tmp_path / "state", commits=0)
    _lengthen(folder, 1000, 100, of_before=True)
    begun = time.process_time()
    with StateStore.open(folder, write=True) as store:
        assert time.process_time() - begun < 2  # seconds; it used to double with every undo
        assert store.position.oldest is None
        assert store.position.applied == len(store.history.applied) == 500
        commit(store, 20_000)
    assert StateStore.open(folder).position.applied == 501
    assert all(check.passed for check in verify_state(folder))


def test_thirty_undos_in_a_row_leave_a_state_that_opens_at_once(folder: Path) -> None:
    with StateStore.open(folder, write=True) as store:
        for _ in range(30):
            store.rollback(store.generation)
    begun = time.process_time()
    assert set(StateStore.open(folder).history.applied) == {"request-1", "request-2", "request-3"}
    assert all(check.passed for check in verify_state(folder))
    assert time.process_time() - begun < 2


def test_a_changed_line_in_the_middle_is_found_once_the_history_is_asked_for(
    folder: Path,
) -> None:
    """Opening does not look there; applying, undoing and verifying do."""
    path = folder / "ledger.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].replace(b"request-1", b"request-7")
    path.write_bytes(b"".join(lines))
    with (
        StateStore.open(folder, write=True) as store,
        pytest.raises(StateError, match="line 2 does not follow"),
    ):
        commit(store, 4)
    assert not all(check.passed for check in verify_state(folder))
