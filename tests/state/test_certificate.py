"""Certificates say what the ledger says of one request, hold offline, and hold no word of it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests import tiny
from tests.state.made_up import commit, create, made_up_state, make_state
from tfrnet.core.errors import InputError
from tfrnet.core.signing import SigningKey, read_key
from tfrnet.data.requests import Request
from tfrnet.state.certificate import (
    certificate_bytes,
    check_certificate,
    check_data,
    make_certificate,
    read_certificate,
    request_key_for,
)
from tfrnet.state.certificate_page import certificate_page
from tfrnet.state.check import Check
from tfrnet.state.digests import request_digest, request_key
from tfrnet.state.lineage import line_in_effect
from tfrnet.state.store import StateStore

ONE, OTHER = tiny.requests(2, size=2)
TIME = "2026-11-16T12:00:00+00:00"
FIXTURES = Path(__file__).parents[1] / "fixtures" / "states"


def apply(store: StateStore, request: Request, accepted: bool = True) -> None:
    record = {
        "id": request.id,
        "outcome": "accepted" if accepted else "rejected",
        "received": "2026-11-16T09:00:00+00:00",
        "request_digest": request_digest(request, store.key()),
        "digest_key": "request",
        "examples": len(request.examples),
        "forget_loss_before": 0.5,
        "forget_loss_after": 3.25,
        "guard_loss_before": 1.0,
        "guard_loss_after": 1.01,
        "details": {"steps": 4, "why": "a word"},
        "versions": {"tfrnet": "0.1.0"},
    }
    state = made_up_state(store.generation + 1) if accepted else None
    store.commit(record, state)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return tmp_path / "key.pem"


@pytest.fixture
def folder(tmp_path: Path, key: Path) -> Path:
    """A state that has rejected a request, then applied it, then applied another."""
    with create(tmp_path / "state", key) as store:
        apply(store, ONE, accepted=False)
        apply(store, ONE)
        apply(store, OTHER)
    return tmp_path / "state"


def certified(folder: Path, key: Path, name: str = ONE.id) -> dict[str, Any]:
    store = StateStore.open(folder)
    return make_certificate(store.manifest, store.entries, name, TIME, read_key(key))


def failed(checks: list[Check]) -> list[str]:
    return [check.detail for check in checks if not check.passed]


# What it says


def test_an_audited_request_says_in_how_many_wordings_it_is_gone(folder: Path, key: Path) -> None:
    entries = StateStore.open(folder).entries
    wordings = {
        "own": {"tried": 2, "before": 2, "after": 0},
        "chat": {"tried": 3, "before": 1, "after": 1},
    }
    entries[2] = entries[2] | {"audit": {"wordings": wordings}}
    manifest = StateStore.open(folder).manifest
    value = make_certificate(manifest, entries, ONE.id, TIME, read_key(key))
    assert value["forgetting"]["wordings_tried"] == 5
    assert value["forgetting"]["wordings_given_before"] == 3
    assert value["forgetting"]["wordings_given_after"] == 1
    assert "3 of 5 wordings before, 1 after" in certificate_page(value)


def test_a_guard_with_groups_shows_the_loss_of_each_without_names(folder: Path, key: Path) -> None:
    store = StateStore.open(folder)
    entries = store.entries
    groups = {"laws": {"before": 1.0, "after": 1.25}, "<b>": {"before": 2.0, "after": None}}
    entries[2] = entries[2] | {"guard_groups": groups}
    value = make_certificate(store.manifest, entries, ONE.id, TIME, read_key(key))
    assert value["guard"]["groups"] == [
        {"loss_before": 1.0, "loss_after": 1.25},
        {"loss_before": 2.0, "loss_after": None},
    ]
    assert "laws" not in str(value)
    page = certificate_page(value)
    assert "<th>loss on group 1 of them<td>1.000 before, 1.250 after" in page
    assert "<th>loss on group 2 of them<td>2.000 before, not known after" in page
    assert "loss on group" not in certificate_page(certified(folder, key))


def test_it_says_what_the_ledger_says(folder: Path, key: Path) -> None:
    lines = StateStore.open(folder).entries
    value = certified(folder, key)
    assert value["request"] == {
        "id": ONE.id,
        "digest": lines[2]["request_digest"],
        "digest_key": "request",
        "examples": 2,
    }
    assert value["received"] == "2026-11-16T09:00:00+00:00"
    assert value["applied"] == lines[2]["time"]
    assert value["generation"] == 1
    assert value["guard"] == {"loss_before": 1.0, "loss_after": 1.01, "examples": 0}
    assert value["forgetting"] == {"loss_before": 0.5, "loss_after": 3.25, "steps": 4}
    assert value["model"] == {"name": "a model", "fingerprint": "f" * 64}
    assert value["method"]["name"] == "tfr"
    assert value["method"]["settings"]["guard_examples"]
    assert value["state_digest"] == lines[2]["state_after"]
    assert value["ledger"] == {
        "state": lines[0]["hash"],
        "sequence": 3,
        "hash": lines[2]["hash"],
        "head": {"sequence": 4, "hash": lines[3]["hash"], "time": lines[3]["time"]},
    }
    assert value["versions"] == {"tfrnet": "0.1.0"}
    assert value["issued"]["time"] == TIME


def test_neither_file_holds_a_word_of_the_request_or_a_hash_of_one(folder: Path, key: Path) -> None:
    value = certified(folder, key)
    written = certificate_bytes(value).decode() + certificate_page(value)
    assert "a word" not in written
    for example in ONE.examples:
        for text in (example.prompt, example.answer, example.joined):
            assert text.strip()
            assert text not in written
            assert hashlib.sha256(text.encode()).hexdigest() not in written


def test_the_page_is_one_file_that_runs_nothing_and_escapes_the_id(folder: Path, key: Path) -> None:
    with StateStore.open(folder, write=True, key=key) as store:
        apply(store, Request("<script>alert(1)</script>", ONE.examples))
    page = certificate_page(certified(folder, key, "<script>alert(1)</script>"))
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert not re.search(r"(src|href|url)\s*[=(]", page)
    style = re.search(r"<style>(.*?)</style>", page, flags=re.DOTALL)[1]
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'"
    assert "3.250 after" in page


# Checking it


def test_it_holds_by_itself_with_the_public_key_and_with_the_ledger(
    folder: Path, key: Path, tmp_path: Path
) -> None:
    value = certified(folder, key)
    (tmp_path / "c.json").write_bytes(certificate_bytes(value))
    assert read_certificate(tmp_path / "c.json") == value
    assert failed(check_certificate(value)) == []
    entries = StateStore.open(folder).entries
    assert failed(check_certificate(value, read_key(key).public, entries)) == []


def leaves(value: Any, place: tuple = ()) -> Iterator[tuple]:
    if isinstance(value, dict):
        for name in value:
            yield from leaves(value[name], (*place, name))
    else:
        yield place


def test_nothing_in_it_can_be_changed(folder: Path, key: Path) -> None:
    value = certified(folder, key)
    places = list(leaves(value))
    assert len(places) > 40
    for place in places:
        changed = json.loads(json.dumps(value))
        inner = changed
        for name in place[:-1]:
            inner = inner[name]
        inner[place[-1]] = "another" if inner[place[-1]] != "another" else "one"
        assert failed(check_certificate(changed)), place
    assert failed(check_certificate(value | {"more": 1}))


def test_that_of_another_key_is_refused_unless_the_ledger_shows_the_rotation(
    folder: Path, key: Path, tmp_path: Path
) -> None:
    old, new = read_key(key).public, tmp_path / "new.pem"
    with StateStore.open(folder, write=True, key=key) as store:
        store.rotate_key(new)
    value = certified(folder, new)
    entries = StateStore.open(folder).entries
    assert "not by" in failed(check_certificate(value, old))[0]
    assert failed(check_certificate(value, old, entries)) == []
    assert failed(check_certificate(value, SigningKey.new().public, entries))


def test_a_ledger_that_was_rewritten_or_undone_is_told_apart(
    folder: Path, key: Path, tmp_path: Path
) -> None:
    value = certified(folder, key)
    public = read_key(key).public
    other = StateStore.open(make_state(tmp_path / "other", key=key)).entries
    assert failed(check_certificate(value, public, other)) == [
        "the certificate belongs to another state"
    ]
    entries = StateStore.open(folder).entries
    assert failed(check_certificate(value, public, entries[:3])) == [
        "line 4 is not the one certified"
    ]
    with StateStore.open(folder, write=True, key=key) as store:
        store.rollback(0)
        entries = store.entries
        (why,) = failed(check_certificate(value, public, entries))
        assert "rolled back at" in why
        apply(store, ONE)
        (why,) = failed(check_certificate(value, public, store.entries))
    assert why == "it was rolled back, and applied again by line 6; ask for a new certificate"


def test_the_data_is_recognised_by_the_requests_own_key_only(folder: Path, key: Path) -> None:
    value, secret = certified(folder, key), StateStore.open(folder).key()
    own = request_key_for(value, secret)
    assert own != secret
    assert check_data(value, ONE, own).passed
    assert not check_data(value, OTHER, own).passed
    assert not check_data(value, Request(ONE.id, ONE.examples[::-1]), own).passed
    assert not check_data(value, ONE, request_key(secret, OTHER.id)).passed
    assert not check_data(certified(folder, key, OTHER.id), OTHER, own).passed


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[" * 100_000,
        b'{"schema":"tfrnet.certificate/1"}',
        b'{"schema":"tfrnet.certificate/1","ledger":[],"request":"x"}',
        b"\xff\xfe",
    ],
)
def test_what_is_no_certificate_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "c.json").write_bytes(content)
    with pytest.raises(InputError, match=r"c\.json is not a certificate issued by tfrnet$"):
        read_certificate(tmp_path / "c.json")


def test_nothing_can_be_said_twice_in_a_file(folder: Path, key: Path, tmp_path: Path) -> None:
    text = certificate_bytes(certified(folder, key)).decode()
    (tmp_path / "c.json").write_text(text.replace("{", '{\n "applied": "1999",', 1))
    with pytest.raises(InputError, match="is not a certificate issued by tfrnet"):
        read_certificate(tmp_path / "c.json")


def test_the_documented_check_without_tfrnet_holds(folder: Path, key: Path, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
    script = re.search(r"```sh\n(.*?)```", page, flags=re.DOTALL)[1]
    value = certified(folder, key)
    (tmp_path / "public.pem").write_bytes(read_key(key).public.pem())
    for certificate, expected in ((value, 0), (value | {"applied": "1999"}, 1)):
        (tmp_path / "certificate.json").write_bytes(certificate_bytes(certificate))
        finished = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True)
        assert finished.returncode == expected, finished.stderr


# What cannot be certified


def test_a_request_that_is_unknown_rejected_or_undone_has_no_certificate(
    folder: Path, key: Path
) -> None:
    with pytest.raises(InputError, match="there is no certificate: request 'x' is not in the ledg"):
        certified(folder, key, "x")
    with StateStore.open(folder, write=True, key=key) as store:
        apply(store, Request("no", ONE.examples), accepted=False)
        store.rollback(1)
    with pytest.raises(
        InputError, match=r"request 'no' was rejected at .*, so nothing was deleted"
    ):
        certified(folder, key, "no")
    with pytest.raises(InputError, match=r"was applied at .* and rolled back at "):
        certified(folder, key, OTHER.id)
    assert certified(folder, key)["ledger"]["sequence"] == 3


@pytest.mark.parametrize("seed", range(10))
def test_the_line_in_effect_agrees_with_the_history(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    with create(tmp_path / "state") as store:
        for _ in range(25):
            if store.generation and random.random() < 0.3:
                store.rollback(random.choice(store.layout.numbers()))
                continue
            number = random.randrange(8)
            if f"request-{number}" not in store.history.applied:
                commit(store, number, accepted=random.random() < 0.8)
        entries, applied = store.entries, store.history.applied
        for number in range(8):
            found = line_in_effect(entries, f"request-{number}")
            assert (found is not None) == (f"request-{number}" in applied)
            if found:
                assert found[1] == entries[found[0] - 1]
                assert found[1]["outcome"] == "accepted"


@pytest.mark.parametrize("case", ["tfr-paper", "npo"])
def test_a_state_of_before_can_certify_once_it_is_signed(
    tmp_path: Path, key: Path, case: str
) -> None:
    folder = Path(shutil.copytree(FIXTURES / case, tmp_path / "state"))
    with StateStore.open(folder, write=True, key=key) as store:
        store.begin_signing()
        name = next(iter(store.history.applied))
        secret = store.key()
    value = certified(folder, key, name)
    assert value["received"] == value["applied"]
    assert value["forgetting"]["loss_before"] > 0
    request = next(each for each in tiny.requests(5) if each.id == name)
    assert check_data(value, request, secret).passed
    with pytest.raises(InputError, match="one key for all requests"):
        request_key_for(value, secret)
