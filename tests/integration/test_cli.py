"""The command line: every command, for a person and as JSON, and its exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from tests import tiny
from tests.integration.commands import DEEP, FAST, Files, Tfrnet, write_lines
from tfrnet.masking.strength import MaskStrength
from tfrnet.method_state import apply_state
from tfrnet.state.store import StateStore

# With a guard of almost the same words as the requests, forgetting these breaks the guard.
REJECT = [*DEEP, "--set", "guard_relative=0", "--set", "backtracks=0"]
REJECT += ["--set", "guard_examples=6"]


def test_forget_applies_a_request(tfrnet: Tfrnet, files: Files, tmp_path: Path) -> None:
    opening = files.opening(tmp_path / "new")
    result = tfrnet("forget", "--request", files.request, *opening, *FAST, "--no-audit")
    assert (result.code, result.unexpected) == (0, [])
    assert result.out.startswith("request-2: accepted, forget loss ")
    assert len(result.out.splitlines()) == 1
    assert StateStore.open(tmp_path / "new").generation == 1


def test_forget_as_json(tfrnet: Tfrnet, files: Files) -> None:
    result = tfrnet("forget", "--request", files.request, *files.opening(), "--json")
    assert (result.code, result.unexpected) == (0, [])
    record = result.json
    assert record["schema"] == "tfrnet.forget/1"
    assert "top_channels" not in record  # long, and there with --full
    assert record["generation"] == 3
    assert (record["id"], record["outcome"]) == ("request-2", "accepted")
    # Every figure of method.md, section 3.
    assert {
        *("reason", "forget_loss_before", "forget_loss_after", "guard_loss_before"),
        *("guard_loss_after", "selected", "recovery_pool", "recovered", "suppressed_now"),
        *("dormant", "capacity", "mask", "checked", "seconds"),
    } <= set(record)


@pytest.mark.parametrize("as_json", [False, True])
def test_a_rejected_request_exits_with_1(
    tfrnet: Tfrnet, files: Files, tmp_path: Path, as_json: bool
) -> None:
    options = [*files.opening(tmp_path / "new"), *REJECT, "--guard", files.close_guard]
    options += ["--json"] if as_json else []
    result = tfrnet("forget", "--request", files.request, *options)
    assert (result.code, result.unexpected) == (1, [])
    if as_json:
        assert result.json["outcome"] == "rejected"
        assert "over the limit" in result.json["reason"]
    else:
        assert result.out.startswith("request-2: rejected, nothing changed (guard loss would rise")
    store = StateStore.open(tmp_path / "new")
    assert store.generation == 0
    assert list(store.history.rejected) == ["request-2"]


def test_a_request_that_is_applied_already_is_said_and_changes_nothing(
    tfrnet: Tfrnet, files: Files, tmp_path: Path
) -> None:
    first = write_lines(tmp_path / "first.jsonl", [tiny.requests(1, size=2)[0].to_dict()])
    ledger = (files.state / "ledger.jsonl").read_bytes()
    result = tfrnet("forget", "--request", first, *files.opening())
    assert result.code == 2
    assert result.error == "request 'request-0' is applied already; nothing was changed"
    assert (files.state / "ledger.jsonl").read_bytes() == ledger


def test_run_goes_on_where_the_state_stands(tfrnet: Tfrnet, files: Files) -> None:
    result = tfrnet("run", "--stream", files.stream, *files.opening(), "--no-audit")
    assert (result.code, result.unexpected) == (0, [])
    outcome, before, summary = result.out.splitlines()
    assert outcome.startswith("request-2: accepted")
    assert before == "2 of 3 requests were already done"
    assert summary.endswith("generation 3, 1 applied and 0 rejected in this run")
    again = tfrnet("run", "--requests", files.stream, *files.opening(), "--json").json
    assert again["skipped"] == ["request-0", "request-1", "request-2"]
    assert (again["outcomes"], again["rejected"], again["generation"]) == ([], [], 3)


def test_run_as_json_and_exit_code_of_a_rejection(
    tfrnet: Tfrnet, files: Files, tmp_path: Path
) -> None:
    options = [*files.opening(tmp_path / "new"), *REJECT, "--guard", files.close_guard, "--json"]
    result = tfrnet("run", "--stream", files.stream, *options)
    assert (result.code, result.unexpected) == (1, [])
    assert result.json["schema"] == "tfrnet.run/1"
    assert [outcome["id"] for outcome in result.json["outcomes"]] == [
        f"request-{number}" for number in range(3)
    ]
    rejected = result.json["rejected"]
    assert rejected
    again = tfrnet("run", "--stream", files.stream, *options)
    # Nothing is left to do, and still not everything is applied.
    assert (again.code, again.json["outcomes"]) == (1, [])
    assert again.json["rejected"] == rejected
    retried = tfrnet("run", "--stream", files.stream, *options, "--retry-rejected").json
    assert [outcome["id"] for outcome in retried["outcomes"]] == rejected


def test_a_state_finds_its_model_from_another_folder(
    tfrnet: Tfrnet, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files.model.parent)
    options = ["--retain", files.retain, "--state", tmp_path / "new", *FAST]
    assert (
        tfrnet("forget", "--request", files.request, "--model", files.model.name, *options).code
        == 0
    )
    monkeypatch.chdir(tmp_path)
    assert tfrnet("generate", "--prompt", "Item 3", "--state", tmp_path / "new").code == 0


def test_set_on_a_state_starts_from_the_states_own_settings(tfrnet: Tfrnet, files: Files) -> None:
    same = tfrnet("run", "--stream", files.stream, *files.opening(), "--set", "guard_examples=4")
    assert same.code == 0
    other = tfrnet("run", "--stream", files.stream, *files.opening(), "--set", "steps=7")
    assert (other.code, "steps=1, not 7" in other.error) == (2, True)


def test_a_mask_is_as_strong_in_status_as_in_history_and_in_the_outcome(
    tfrnet: Tfrnet, files: Files
) -> None:
    told = tfrnet("forget", "--request", files.request, *files.opening()).out
    status = tfrnet("status", "--state", files.state).out
    history = tfrnet("history", "--state", files.state).out
    change = re.search(r"changed by .* on average, .* at most", status)
    assert change
    assert change[0] in told
    assert change[0] in history.splitlines()[-1]
    mask = load_file(files.state / "generations" / "00000003.safetensors")["mask"]
    values = tfrnet("status", "--state", files.state, "--json").json["mask"]
    assert values == MaskStrength.of(mask.numpy(), 0.1).to_dict()
    assert f"{values['changed_10_percent']} by more than 10 %" in status


def test_history_shows_a_loss_that_is_not_finite(tfrnet: Tfrnet, files: Files) -> None:
    with StateStore.open(files.state, write=True) as store:
        last = {k: v for k, v in store.entries[-1].items() if k not in ("hash", "previous")}
        store.commit(last | {"id": "odd", "forget_loss_after": None}, store.load())
    result = tfrnet("history", "--state", files.state)
    assert result.code == 0
    assert "not finite" in result.out.splitlines()[-1]


def test_ids_that_an_earlier_version_took_are_shown_escaped(
    tfrnet: Tfrnet, files: Files, tmp_path: Path
) -> None:
    """A line end would forge a line of the history, an escape sequence command the terminal."""
    odd = "bad\ud800id\x1b]0;title\x07\n2026-01-01 accepted forged"
    with StateStore.open(files.state, write=True) as store:
        last = {k: v for k, v in store.entries[-1].items() if k not in ("hash", "previous")}
        store.commit(last | {"id": odd}, store.load())
    shown = r"bad\ud800id\x1b]0;title\x07\x0a2026-01-01 accepted forged"
    history = tfrnet("history", "--state", files.state)
    assert (history.code, len(history.out.splitlines())) == (0, 4)
    assert shown in history.out
    assert tfrnet("history", "--state", files.state, "--json").json["entries"][-1]["id"] == odd
    assert tfrnet("status", "--state", files.state, "--json").json["applied"][-1] == odd
    assert tfrnet("report", files.state, "--out", tmp_path / "page.html").code == 0
    undone = tfrnet("rollback", "--to", 0, "--state", files.state)
    assert shown in undone.out
    missing = tfrnet("status", "--state", "no\x1b[2Jstate")
    assert (missing.code, r"no\x1b[2Jstate holds no state" in missing.error) == (2, True)


def test_run_keeps_as_many_generations_as_told(tfrnet: Tfrnet, files: Files) -> None:
    assert tfrnet("run", "--stream", files.stream, *files.opening(), "--keep", 1).code == 0
    assert tfrnet("status", "--state", files.state, "--json").json["generations_kept"] == [0, 3]


def test_run_says_what_it_repaired(tfrnet: Tfrnet, files: Files) -> None:
    with (files.state / "ledger.jsonl").open("a") as file:
        file.write('{"kind":"requ')
    result = tfrnet("run", "--stream", files.stream, *files.opening(), "--json")
    assert result.code == 0
    assert result.json["generation"] == 3
    (note,) = result.unexpected
    assert note == f"repaired {files.state}: cut off a torn last line of ledger.jsonl (13 bytes)"


def test_status(tfrnet: Tfrnet, files: Files) -> None:
    result = tfrnet("status", "--state", files.state)
    assert (result.code, result.err) == (0, "")
    assert "generation   2 (kept: 0 to 2)" in result.out
    assert "2 applied, 0 rejected, 2 seen in total" in result.out
    values = tfrnet("status", "--state", files.state, "--json").json
    assert values["schema"] == "tfrnet.status/1"
    assert values["applied"] == ["request-0", "request-1"]
    mask = load_file(files.state / "generations" / "00000002.safetensors")["mask"]
    assert values["suppressed_now"] == sum(value < 1 for value in mask.tolist())
    assert values["capacity"] == sum(value > 0.1 for value in mask.tolist()) / len(mask)
    assert values["channels"] == len(mask)
    assert values["config"]["guard_examples"] == 4


def test_all_commands_agree_on_the_requests_in_force(
    tfrnet: Tfrnet, files: Files, tmp_path: Path
) -> None:
    """Also where some were undone and one of them was asked for again."""
    assert tfrnet("rollback", "--to", 0, "--state", files.state).code == 0
    asked = files.stream.read_text().splitlines()[0]
    (first := tmp_path / "first.jsonl").write_text(asked)
    assert tfrnet("forget", "--request", first, *files.opening(), "--no-audit").code == 0
    said = "1 applied, 0 rejected, 3 seen in total"
    assert said in tfrnet("status", "--state", files.state).out
    assert said in tfrnet("report", files.state, "--out", tmp_path / "page.html").out
    lines = tfrnet("history", "--state", files.state).out.splitlines()
    applied = [line for line in lines if "accepted  " in line]
    assert [line.endswith(", undone since") for line in applied] == [True, True, False]
    values = {
        command: tfrnet(command, "--state", files.state, "--json").json
        for command in ("status", "history")
    }
    for found in values.values():
        assert (found["applied"], found["rejected"]) == (["request-0"], [])
    options = ["--model", files.model, "--state", files.state, "--device", "cpu", "--json"]
    audit = tfrnet("audit", "--requests", files.stream, *options)
    assert list(audit.json["requests"]) == ["request-0"]
    page = tfrnet("report", files.state, "--out", tmp_path / "page.html", "--json").json
    assert (page["accepted"], page["rejected"], page["seen"]) == (1, 0, 3)


def test_history(tfrnet: Tfrnet, files: Files) -> None:
    tfrnet("rollback", "--to", 1, "--state", files.state)
    result = tfrnet("history", "--state", files.state)
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    expected = ["created", "accepted  request-0", "accepted  request-1", "rolled back to"]
    assert len(lines) == len(expected)
    for line, part in zip(lines, expected, strict=True):
        assert part in line
    short = tfrnet("history", "--state", files.state, "--json").json["entries"]
    values = tfrnet("history", "--state", files.state, "--json", "--full").json
    assert values["schema"] == "tfrnet.history/1"
    assert all("top_channels" not in entry for entry in short)
    assert [entry["hash"] for entry in short] == [entry["hash"] for entry in values["entries"]]
    ledger = (files.state / "ledger.jsonl").read_text().splitlines()
    assert values["entries"] == [json.loads(line) for line in ledger]


def test_verify(tfrnet: Tfrnet, files: Files) -> None:
    result = tfrnet("verify", "--state", files.state)
    assert (result.code, result.err) == (0, "")
    assert all(line.startswith("ok ") for line in result.out.splitlines())
    values = tfrnet("verify", "--state", files.state, "--json").json
    assert (values["schema"], values["passed"]) == ("tfrnet.verify/1", True)


@pytest.mark.parametrize("as_json", [False, True])
def test_a_failed_verify_exits_with_1_and_names_the_file(
    tfrnet: Tfrnet, files: Files, as_json: bool
) -> None:
    damaged = files.state / "generations" / "00000001.safetensors"
    data = bytearray(damaged.read_bytes())
    data[-5] ^= 1
    damaged.write_bytes(data)
    result = tfrnet("verify", "--state", files.state, *(["--json"] if as_json else []))
    assert result.code == 1
    assert "failed 1 of" in result.error
    assert str(damaged) in result.out
    if as_json:
        assert result.json["passed"] is False
    else:
        failed = [line for line in result.out.splitlines() if line.startswith("FAILED")]
        assert len(failed) == 1


def test_rollback(tfrnet: Tfrnet, files: Files) -> None:
    result = tfrnet("rollback", "--to", 1, "--state", files.state)
    assert (result.code, result.err) == (0, "")
    assert "generation 3 restores generation 1; requests undone: request-1" in result.out
    values = tfrnet("rollback", "--to", 2, "--state", files.state, "--json").json
    assert values == {
        "schema": "tfrnet.rollback/1",
        "state": str(files.state),
        "to": 2,
        "generation": 4,
        "undone": [],
    }
    generations = files.state / "generations"
    two, four = (load_file(generations / f"{number:08d}.safetensors") for number in (2, 4))
    assert all(torch.equal(two[name], four[name]) for name in two)


def test_export_writes_a_model_that_behaves_like_the_masked_one(
    tfrnet: Tfrnet, files: Files, tmp_path: Path
) -> None:
    out = tmp_path / "exported"
    result = tfrnet("export", "--format", "dense", "--out", out, "--state", files.state)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(f"exported generation 2 to {out}; its logits agree")
    base = AutoModelForCausalLM.from_pretrained(files.model)
    ids = torch.arange(5, 40)[None]
    with torch.no_grad():
        untouched = base(ids).logits
        with apply_state(base, files.state):
            masked = base(ids).logits
        exported = AutoModelForCausalLM.from_pretrained(out)(ids).logits
    torch.testing.assert_close(exported, masked, rtol=1e-4, atol=1e-4)
    assert (exported - untouched).abs().max() > 0.01


def test_export_as_json_of_an_older_generation(
    tfrnet: Tfrnet, files: Files, tmp_path: Path
) -> None:
    options = ["--generation", 0, "--out", tmp_path / "base", "--state", files.state, "--json"]
    values = tfrnet("export", *options).json
    assert values["schema"] == "tfrnet.export/1"
    assert values["generation"] == 0
    assert values["relative_difference"] < 1e-4
    again = tfrnet("export", *options)
    assert again.code == 2
    assert "exists already and is not empty" in again.error


def test_generate_shows_before_and_after(tfrnet: Tfrnet, files: Files) -> None:
    options = ["--prompt", "Item 3 of the", "--prompt", "red", "--max-new-tokens", 6]
    result = tfrnet("generate", *options, "--state", files.state)
    assert (result.code, result.err) == (0, "")
    starts = [line.split()[0] for line in result.out.splitlines() if line]
    assert starts == ["prompt", "before", "after"] * 2
    values = tfrnet("generate", *options, "--state", files.state, "--json").json
    assert values["schema"] == "tfrnet.generate/1"
    assert [row["prompt"] for row in values["generations"]] == ["Item 3 of the", "red"]
    # Generation 0 has a mask of ones: nothing changes.
    initial = tfrnet("generate", *options, "--state", files.state, "--generation", 0, "--json").json
    assert all(row["before"] == row["after"] for row in initial["generations"])
    assert [row["before"] for row in initial["generations"]] == [
        row["before"] for row in values["generations"]
    ]


@pytest.mark.parametrize(
    ("moment", "command"),
    [
        ("tfrnet.models.load.load_model", "forget"),
        ("tfrnet.session.Session.forget", "forget"),
        ("tfrnet.models.load.load_model", "run"),
        ("tfrnet.session.Session.forget", "run"),
        ("tfrnet.models.load.load_model", "export"),
        ("tfrnet.models.generation.stream_text", "generate"),
    ],
)
def test_ctrl_c_is_one_line_and_130(
    tfrnet: Tfrnet,
    files: Files,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
    command: str,
) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(moment, interrupt)
    options = {
        "forget": ["--request", files.request, *files.opening()],
        "run": ["--stream", files.stream, *files.opening()],
        "export": ["--out", tmp_path / "exported", "--state", files.state],
        "generate": ["--prompt", "x", "--state", files.state],
    }
    result = tfrnet(command, *options[command])
    assert (result.code, result.out) == (130, "prompt  x\n" if command == "generate" else "")
    (line,) = result.unexpected
    assert "interrupted" in line
    StateStore.open(files.state, write=True).close()  # the lock was given back
    assert not (tmp_path / "exported").exists()
