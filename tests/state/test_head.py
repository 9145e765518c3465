"""Heads: what they say, and how a file of them is read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.state.made_up import make_state
from tfrnet.core.canonical import canonical
from tfrnet.core.errors import InputError
from tfrnet.core.signing import read_key
from tfrnet.state.head import make_head, read_heads
from tfrnet.state.store import StateStore

TIME = "2026-11-16T12:00:00+00:00"


@pytest.fixture
def head(tmp_path: Path) -> dict:
    key = tmp_path / "key.pem"
    return make_head(StateStore.open(make_state(tmp_path / "s", key=key)), TIME, read_key(key))


def written(tmp_path: Path, *lines: bytes) -> Path:
    path = tmp_path / "heads.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def test_it_says_which_line_of_which_state_was_the_last(tmp_path: Path, head: dict) -> None:
    lines = [json.loads(text) for text in (tmp_path / "s" / "ledger.jsonl").read_text().split()]
    assert head["state"] == lines[0]["hash"]
    assert head["head"] == lines[-1]["hash"]
    assert (head["sequence"], head["generation"], head["time"]) == (4, 3, TIME)


def test_a_file_may_hold_many(tmp_path: Path, head: dict) -> None:
    line = canonical(head)
    assert read_heads(written(tmp_path, line, b"", line)) == [head, head]


def test_no_field_can_be_changed(tmp_path: Path, head: dict) -> None:
    for name, value in head.items():
        if name == "schema":
            continue
        changed = head | {name: value + 1 if isinstance(value, int) else f"{value[:-1]}x"}
        with pytest.raises(InputError, match="the signature of this head is invalid"):
            read_heads(written(tmp_path, canonical(changed)))
    only = {name: value for name, value in head.items() if name != "signature"}
    with pytest.raises(InputError, match="the signature of this head is invalid"):
        read_heads(written(tmp_path, canonical(only)))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"[]", "1: this is not a head; 'tfrnet head' prints one"),
        (b'{"schema":"tfrnet.status/1"}', "1: this is not a head"),
        (b'{"schema":"tfrnet.head/1","state":"x"}', "1: this head is damaged"),
        (b"", "holds no head"),
        (b"{", "1: not JSON"),
    ],
)
def test_what_is_no_head_is_refused_by_its_line(tmp_path: Path, line: bytes, says: str) -> None:
    with pytest.raises(InputError, match=says):
        read_heads(written(tmp_path, line))
