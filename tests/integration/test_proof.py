"""Keys, heads and certificates at the command line, from a real request to somebody's check."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.commands import FAST, Files, Tfrnet, write_lines
from tests.state.attacks import lines_of, put
from tests.state.made_up import contents, generation_file, make_state
from tfrnet.core.canonical import canonical
from tfrnet.core.clock import now
from tfrnet.core.signing import SigningKey, make_key
from tfrnet.state.head import make_head
from tfrnet.state.store import StateStore


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "key.pem"
    make_key(path)
    return path


@pytest.fixture
def signed(tmp_path: Path, key: Path) -> Path:
    return make_state(tmp_path / "signed", key=key)


def test_from_a_request_to_a_certificate_that_the_person_checks(
    tfrnet: Tfrnet, files: Files, tmp_path: Path
) -> None:
    key, state = tmp_path / "keys" / "key.pem", tmp_path / "new-state"
    request = json.loads(files.request.read_text())
    asked = ["forget", "--request", files.request, *files.opening(state), *FAST]
    made = tfrnet(*asked, "--key", key, "--json")
    assert made.code == 0
    assert f"tfrnet: warning: made signing key {key}; keep it" in made.err
    assert key.stat().st_mode & 0o777 == 0o600
    assert "signed       by key" in tfrnet("status", "--state", state).out

    public = tmp_path / "public.pem"
    public.write_text(tfrnet("key", "public", "--key", key).out)
    assert tfrnet("key", "public", "--state", state).out == public.read_text()
    heads = tmp_path / "heads.jsonl"
    heads.write_text(tfrnet("head", "--state", state, "--key", key).out)
    verified = tfrnet("verify", "--state", state, "--head", heads, "--public-key", public)
    assert verified.code == 0
    assert "ok     signatures: lines 1 to 2 are signed" in verified.out

    out, data_key = tmp_path / "c.json", tmp_path / "c.key"
    made = ["certificate", "--state", state, "--key", key, "--id", request["id"]]
    assert tfrnet(*made, "--out", out, "--data-key", data_key).code == 0
    assert data_key.stat().st_mode & 0o777 == 0o600
    page = (tmp_path / "c.html").read_text()
    certificate = json.loads(out.read_text())
    assert certificate["forgetting"]["loss_after"] != certificate["forgetting"]["loss_before"]
    for example in request["examples"]:
        assert example["answer"] not in page + out.read_text()

    check = ["certificate", "--check", out, "--public-key", public]
    assert tfrnet(*check).code == 0
    told = tfrnet(*check, "--data", files.request, "--data-key", data_key, "--json")
    assert (told.code, told.json["passed"]) == (0, True)
    assert [each["name"] for each in told.json["checks"]] == ["signature", "data"]
    assert tfrnet(*check, "--data", files.request, "--state", state).code == 0

    request["examples"][0]["answer"] += " not"
    other = write_lines(tmp_path / "other.jsonl", [request])
    told = tfrnet(*check, "--data", other, "--data-key", data_key)
    assert (told.code, told.error) == (1, f"certificate {out} failed 1 of 2 checks")
    assert "FAILED data: the examples, their order or the key differ" in told.out


def test_a_removed_tail_and_another_states_head_are_one_line_and_exit_code_1(
    tfrnet: Tfrnet, signed: Path, key: Path, tmp_path: Path
) -> None:
    heads, other = tmp_path / "heads.jsonl", make_state(tmp_path / "other", key=key)
    heads.write_text(tfrnet("head", "--state", signed, "--key", key).out)
    told = tfrnet("verify", "--state", other, "--head", heads)
    assert told.code == 1
    assert "another state, or one rewritten" in told.out
    assert told.error.startswith(f"state {other} failed 1 of ")
    put(signed, lines_of(signed)[:-1])
    told = tfrnet("verify", "--state", signed, "--head", heads)
    assert told.code == 1
    assert "lines were removed, or an older copy was put back" in told.out
    assert tfrnet("verify", "--state", signed).code == 0


def test_what_repair_cannot_mend_does_not_advise_it(
    tfrnet: Tfrnet, signed: Path, tmp_path: Path
) -> None:
    heads, store = tmp_path / "heads.jsonl", StateStore.open(signed)
    heads.write_bytes(canonical(make_head(store, now(), SigningKey.new())) + b"\n")
    told = tfrnet("verify", "--state", signed, "--head", heads)
    assert told.code == 1
    assert "was not in force at line 4 of the ledger; it was not made with this state" in told.out
    assert "'tfrnet repair' does not help: compare the state with a backup" in told.error
    generation_file(signed, 3).write_bytes(b"garbage")
    told = tfrnet("verify", "--state", signed, "--head", heads)
    assert told.error.endswith("; 'tfrnet repair' says what can be saved")


def test_heads_of_a_state_without_a_key_or_with_one_that_is_not_given_say_that_they_are_unsigned(
    tfrnet: Tfrnet, signed: Path, tmp_path: Path
) -> None:
    unsigned = make_state(tmp_path / "unsigned")
    told = tfrnet("head", "--state", unsigned)
    assert told.code == 0
    assert told.err == f"this head is not signed: state {unsigned} is not signed\n"
    assert set(told.json) == {"schema", "state", "sequence", "head", "generation", "time"}
    assert "no key is given" in tfrnet("head", "--state", signed).err
    (tmp_path / "heads.jsonl").write_text(told.out)
    told = tfrnet("verify", "--state", unsigned, "--head", tmp_path / "heads.jsonl")
    assert told.code == 0
    assert "this state is not signed" in told.out
    assert "it is not signed, so it is worth as much as the place where it was kept" in told.out
    assert "signed       no" in tfrnet("status", "--state", unsigned).out


def test_keys_are_made_begun_with_and_rotated(tfrnet: Tfrnet, files: Files, tmp_path: Path) -> None:
    state = files.state
    first, second = tmp_path / "first.pem", tmp_path / "second.pem"
    assert tfrnet("key", "new", "--key", first).code == 0
    assert tfrnet("key", "new", "--key", first).code == 2
    assert tfrnet("key", "sign", "--state", state, "--key", first).code == 0
    assert "signed already" in tfrnet("key", "sign", "--state", state, "--key", first).error
    rotate = ["key", "rotate", "--state", state]
    assert tfrnet(*rotate, "--key", first, "--new-key", second).code == 0
    assert "is signed by key" in tfrnet(*rotate, "--key", first, "--new-key", second).error
    told = tfrnet("history", "--state", state).out.splitlines()
    assert [line.split("signed by key ")[1][16:] for line in told[-2:]] == [
        " from this line on",
        " from the next line on",
    ]
    assert tfrnet("rollback", "--state", state, "--to", 0).code == 2
    assert tfrnet("rollback", "--state", state, "--to", 0, "--key", second).code == 0
    assert tfrnet("verify", "--state", state).code == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["key", "melt"], "unknown action 'melt'; choose from new, public, sign, rotate"),
        (["key", "new"], "'tfrnet key new' needs a key: --key FILE or TFRNET_KEY"),
        (["key", "rotate"], "'tfrnet key rotate' needs the next key: --new-key FILE"),
        (["key", "public", "--key", "none.pem"], "signing key none.pem does not exist"),
        (["head", "--key", "none.pem"], "signing key none.pem does not exist"),
        (["head", "--key", "open.pem"], "signing key open.pem is open to others (mode 0644)"),
        (["head", "--key", "wrong.pem"], "wrong.pem is key "),
        (["verify", "--head", "none.jsonl"], "none.jsonl does not exist"),
        (["verify", "--head", "open.pem"], "open.pem:1: not JSON"),
        (["verify", "--public-key", "none.pem"], "public key none.pem does not exist"),
        (["verify", "--public-key", "wrong.pem"], "wrong.pem is not an Ed25519 public key"),
        (["rollback", "--to", "1"], "is signed by key "),
        (["rollback", "--to", "1", "--key", "signed/k.pem"], "lies in the state itself"),
        (["certificate"], "give --id and --out to issue a certificate, or --check to check one"),
        (["certificate", "--id", "request-1", "--out", "c.json"], "is signed by key "),
        (
            ["certificate", "--id", "x", "--out", "c.json", "--key", "KEY"],
            "there is no certificate: request 'x' is not in the ledger",
        ),
        (
            ["certificate", "--id", "request-1", "--out", "no/c.json", "--key", "KEY"],
            "no/c.html cannot be written: No such file or directory",
        ),
        (
            ["certificate", "--id", "request-1", "--out", "wrong.pem", "--key", "KEY"],
            "wrong.pem exists already; choose a new file",
        ),
        (
            ["certificate", "--id", "request-1", "--out", "c.html", "--key", "KEY"],
            "need different names",
        ),
        (
            ["certificate", "--id", "request-1", "--out", ".", "--key", "KEY"],
            ". is a folder; give --out a new file",
        ),
        (
            ["certificate", "--id", "request-1", "--out", "/", "--key", "KEY"],
            "/ is a folder; give --out a new file",
        ),
        (["certificate", "--check", "wrong.pem"], "wrong.pem is not a certificate"),
        (["certificate", "--check", "none.json"], "none.json cannot be read: No such file"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_one_line_and_changes_nothing(
    tfrnet: Tfrnet,
    signed: Path,
    key: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    says: str,
) -> None:
    here = signed.parent
    monkeypatch.chdir(here)
    make_key(here / "wrong.pem")
    make_key(here / "open.pem")
    (here / "open.pem").chmod(0o644)
    before = contents(here)
    given = [str(key) if each == "KEY" else each for each in arguments]
    told = tfrnet(*given, *(["--state", "signed"] if "--check" not in given else []))
    assert told.code == 2
    assert says in told.error
    assert contents(here) == before


def test_an_unsigned_state_cannot_certify(tfrnet: Tfrnet, key: Path, tmp_path: Path) -> None:
    state = make_state(tmp_path / "state")
    out = tmp_path / "c.json"
    told = tfrnet("certificate", "--id", "request-1", "--state", state, "--out", out, "--key", key)
    assert told.code == 2
    assert (
        "is not signed, so it cannot issue certificates; 'tfrnet key sign' signs it" in told.error
    )
    assert not out.exists()


def test_these_commands_need_no_torch(signed: Path, key: Path, tmp_path: Path) -> None:
    """Whoever checks a ledger or a certificate needs no model, and does not wait for one."""
    out, heads = tmp_path / "c.json", tmp_path / "heads.jsonl"
    at, after = ("--state", signed), tmp_path / "next.pem"
    commands = [
        ["key", "new", "--key", tmp_path / "another.pem"],
        ["key", "public", "--key", key],
        ["key", "rotate", *at, "--key", key, "--new-key", after],
        ["head", *at, "--key", after],
        ["verify", *at, "--ledger-only", "--head", heads],
        [*("certificate", "--id", "request-1", "--out", out), *at, "--key", after],
        ["certificate", "--check", out, *at],
    ]
    code = f"""
import sys
from pathlib import Path
from contextlib import redirect_stdout
from tfrnet.cli.main import main
for command in {[list(map(str, command)) for command in commands]!r}:
    sys.argv = ["tfrnet", *command]
    try:
        if command[0] == "head":
            with open({str(heads)!r}, "w") as file, redirect_stdout(file):
                main()
        else:
            main()
    except SystemExit as ended:
        assert not ended.code, command
    heavy = {{"torch", "transformers", "numpy", "safetensors"}} & set(sys.modules)
    assert not heavy, (command, heavy)
"""
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.count("ok     ") >= 6
