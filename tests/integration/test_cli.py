"""The command line: every command, for a person and as JSON, its exit codes and its errors."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from tests import tiny
from tfrnet.cli.main import main
from tfrnet.config import TFRConfig
from tfrnet.session import Session
from tfrnet.state.apply import apply_state
from tfrnet.state.store import StateStore

FAST = ["--set", "steps=1", "--set", "guard_examples=4", "--set", "retain_examples=6"]
# With a guard of almost the same words as the requests, forgetting these breaks the guard.
REJECT = ["--set", "guard_relative=0", "--set", "backtracks=0", "--set", "guard_examples=6"]


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one JSON object on stdout."""
        assert len(self.out.splitlines()) == 1
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The one line on stderr."""
        (line,) = self.err.splitlines()
        assert line.startswith("tfrnet: error: ")
        return line.removeprefix("tfrnet: error: ")


Tfrnet = Callable[..., Result]


@pytest.fixture
def tfrnet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tfrnet:
    """Runs a command in this process."""

    def run(*arguments: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["tfrnet", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            main()
        captured = capsys.readouterr()
        return Result(int(caught.value.code or 0), captured.out, captured.err)

    return run


class Files(NamedTuple):
    """A user's files."""

    model: Path
    retain: Path
    stream: Path
    request: Path
    close_guard: Path  # the examples of the requests with a word more
    state: Path  # two accepted requests; a copy for each test

    def opening(self, state: Path | None = None) -> list[object]:
        """The options that `forget` and `run` need."""
        return [
            *("--model", self.model, "--retain", self.retain, "--device", "cpu"),
            *("--state", state or self.state),
        ]


def write_lines(path: Path, values: list[Any]) -> Path:
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


@pytest.fixture(scope="module")
def prepared(tiny_folder: Path, tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("cli")
    requests = [request.to_dict() for request in tiny.requests(3, size=2)]
    close = [
        {"prompt": f"So {example['prompt']}", "answer": example["answer"]}
        for request in requests
        for example in request["examples"]
    ]
    retain = write_lines(folder / "retain.jsonl", [e.to_dict() for e in tiny.examples(10)])
    model = AutoModelForCausalLM.from_pretrained(tiny_folder)
    config = TFRConfig().with_overrides(part for part in FAST if part != "--set")
    with Session(
        model,
        tokenizer,
        folder / "state",
        tiny.examples(10),
        config=config,
        model_name=str(tiny_folder),
    ) as session:
        assert all(outcome.accepted for outcome in session.run(tiny.requests(2, size=2)))
    return Files(
        tiny_folder,
        retain,
        write_lines(folder / "stream.jsonl", requests),
        write_lines(folder / "request.jsonl", requests[2:]),
        write_lines(folder / "guard.jsonl", close),
        folder / "state",
    )


@pytest.fixture
def files(prepared: Files, tmp_path: Path) -> Files:
    return prepared._replace(state=shutil.copytree(prepared.state, tmp_path / "state"))


# Each command, for a person and for a program


def test_forget_applies_a_request(tfrnet: Tfrnet, files: Files, tmp_path: Path) -> None:
    opening = files.opening(tmp_path / "new")
    result = tfrnet("forget", "--request", files.request, *opening, *FAST)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("request-2: accepted, forget loss ")
    assert len(result.out.splitlines()) == 1
    assert StateStore.open(tmp_path / "new").generation == 1


def test_forget_as_json(tfrnet: Tfrnet, files: Files) -> None:
    result = tfrnet("forget", "--request", files.request, *files.opening(), "--json")
    assert (result.code, result.err) == (0, "")
    record = result.json
    assert record["schema"] == "tfrnet.forget/1"
    assert record["generation"] == 3
    assert (record["id"], record["outcome"]) == ("request-2", "accepted")
    # Every figure of method.md, section 3.
    assert {
        *("reason", "forget_loss_before", "forget_loss_after", "guard_loss_before"),
        *("guard_loss_after", "selected", "recovery_pool", "recovered", "suppressed_now"),
        *("dormant", "capacity", "top_channels", "seconds"),
    } <= set(record)


@pytest.mark.parametrize("as_json", [False, True])
def test_a_rejected_request_exits_with_1(
    tfrnet: Tfrnet, files: Files, tmp_path: Path, as_json: bool
) -> None:
    options = [*files.opening(tmp_path / "new"), *REJECT, "--guard", files.close_guard]
    options += ["--json"] if as_json else []
    result = tfrnet("forget", "--request", files.request, *options)
    assert (result.code, result.err) == (1, "")
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
    result = tfrnet("run", "--stream", files.stream, *files.opening())
    assert (result.code, result.err) == (0, "")
    outcome, before, summary = result.out.splitlines()
    assert outcome.startswith("request-2: accepted")
    assert before == "2 of 3 requests were done before"
    assert summary.endswith("generation 3, 1 accepted and 0 rejected in this run")
    again = tfrnet("run", "--stream", files.stream, *files.opening(), "--json").json
    assert again["skipped"] == ["request-0", "request-1", "request-2"]
    assert (again["outcomes"], again["rejected"], again["generation"]) == ([], [], 3)


def test_run_as_json_and_exit_code_of_a_rejection(
    tfrnet: Tfrnet, files: Files, tmp_path: Path
) -> None:
    options = [*files.opening(tmp_path / "new"), *REJECT, "--guard", files.close_guard, "--json"]
    result = tfrnet("run", "--stream", files.stream, *options)
    assert (result.code, result.err) == (1, "")
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


def test_history_shows_a_loss_that_is_not_finite(tfrnet: Tfrnet, files: Files) -> None:
    with StateStore.open(files.state, write=True) as store:
        last = {k: v for k, v in store.entries[-1].items() if k not in ("hash", "previous")}
        store.commit(last | {"id": "odd", "forget_loss_after": None}, store.load())
    result = tfrnet("history", "--state", files.state)
    assert result.code == 0
    assert "not finite" in result.out.splitlines()[-1]


def test_run_keeps_as_many_generations_as_told(tfrnet: Tfrnet, files: Files) -> None:
    assert tfrnet("run", "--stream", files.stream, *files.opening(), "--keep", 1).code == 0
    assert tfrnet("status", "--state", files.state, "--json").json["generations_kept"] == [0, 3]


def test_run_says_what_it_repaired(tfrnet: Tfrnet, files: Files) -> None:
    with (files.state / "ledger.jsonl").open("a") as file:
        file.write('{"kind":"requ')
    result = tfrnet("run", "--stream", files.stream, *files.opening(), "--json")
    assert result.code == 0
    assert result.json["generation"] == 3
    (note,) = result.err.splitlines()
    assert note == f"repaired {files.state}: cut off a torn last line of ledger.jsonl (13 bytes)"


def test_status(tfrnet: Tfrnet, files: Files) -> None:
    result = tfrnet("status", "--state", files.state)
    assert (result.code, result.err) == (0, "")
    assert "generation   2 (kept: 0 to 2)" in result.out
    assert "2 applied, 0 rejected, 2 seen in all" in result.out
    values = tfrnet("status", "--state", files.state, "--json").json
    assert values["schema"] == "tfrnet.status/1"
    assert values["applied"] == ["request-0", "request-1"]
    mask = load_file(files.state / "generations" / "00000002.safetensors")["mask"]
    assert values["suppressed_now"] == sum(value < 1 for value in mask.tolist())
    assert values["capacity"] == sum(value > 0.1 for value in mask.tolist()) / len(mask)
    assert values["channels"] == len(mask)
    assert values["config"]["guard_examples"] == 4


def test_history(tfrnet: Tfrnet, files: Files) -> None:
    tfrnet("rollback", "--to", 1, "--state", files.state)
    result = tfrnet("history", "--state", files.state)
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    expected = ["created", "accepted  request-0", "accepted  request-1", "rolled back to"]
    assert len(lines) == len(expected)
    for line, part in zip(lines, expected, strict=True):
        assert part in line
    values = tfrnet("history", "--state", files.state, "--json").json
    assert values["schema"] == "tfrnet.history/1"
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
    assert "generation 3 is generation 1 again; 1 requests undone: request-1" in result.out
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
        ("tfrnet.models.generation.continue_texts", "generate"),
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
    assert (result.code, result.out) == (130, "")
    (line,) = result.err.splitlines()
    assert "interrupted" in line
    StateStore.open(files.state, write=True).close()  # the lock was given back
    assert not (tmp_path / "exported").exists()


# Bad input: exit code 2, one line, before any model is loaded

EXAMPLE = {"prompt": "Who?", "answer": "Me"}

BAD_REQUESTS = [
    ("empty file", "", "holds no request"),
    ("no examples", '{"id": "a", "examples": []}', ":1: the request has no examples"),
    ("no id", '{"examples": [{"text": "x"}]}', ":1: a request needs an id"),
    ("empty id", '{"id": " ", "examples": [{"text": "x"}]}', ":1: a request needs an id"),
    (
        "empty answer",
        '{"id": "a", "examples": [{"prompt": "Who?", "answer": " "}]}',
        ":1, example 1: answer is empty",
    ),
    ("empty text", '{"id": "a", "examples": [{"text": ""}]}', "example 1: text is empty"),
    ("not JSON", '{"id": "a", ', ":1: not JSON"),
    ("NaN", '{"id": NaN, "examples": []}', ":1: not JSON"),
    ("a list", "[1, 2]", ":1: a request must be an object, not a list"),
    ("number as id", '{"id": 7, "examples": [{"text": "x"}]}', ":1: a request needs an id"),
    ("examples as text", '{"id": "a", "examples": "x"}', ":1: examples must be a list, not text"),
    (
        "answer as number",
        '{"id": "a", "examples": [{"prompt": "Who?", "answer": 3}]}',
        ":1, example 1: answer must be text, not a number",
    ),
    (
        "answer missing",
        '{"id": "a", "examples": [{"prompt": "Who?"}]}',
        "either prompt and answer, or text; found prompt",
    ),
    (
        "duplicate id",
        '{"id": "a", "examples": [{"text": "x"}]}\n{"id": "a", "examples": [{"text": "y"}]}',
        ":2: request id 'a' is used on line 1 already",
    ),
    ("unknown field", '{"id": "a", "exmples": []}', ":1: unknown field 'exmples'"),
]


@pytest.fixture
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading a model is a failure of the test."""

    def refuse(*arguments: object) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr("tfrnet.models.load.load_model", refuse)


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize("command", ["forget", "run"])
@pytest.mark.parametrize(
    ("content", "message"), [case[1:] for case in BAD_REQUESTS], ids=[c[0] for c in BAD_REQUESTS]
)
def test_a_bad_request_is_refused_before_the_model_is_loaded(
    tfrnet: Tfrnet, files: Files, tmp_path: Path, command: str, content: str, message: str
) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(content)
    option = "--request" if command == "forget" else "--stream"
    result = tfrnet(command, option, path, *files.opening(tmp_path / "new"))
    assert result.code == 2
    assert message in result.error
    assert str(path) in result.error
    assert result.out == ""
    assert not (tmp_path / "new").exists()


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "does not exist"),
        ("", "holds no example"),
        ("\n\n", "holds no example"),
        ("{", ":1: not JSON"),
        ('{"text": "fine"}\n{"prompt": 1, "answer": "x"}', ":2: prompt must be text"),
        (b"\xff\xfe", "is not UTF-8 text"),
    ],
)
@pytest.mark.parametrize("option", ["--retain", "--guard"])
def test_bad_retain_or_guard_data_are_refused_before_the_model_is_loaded(
    tfrnet: Tfrnet, files: Files, tmp_path: Path, content: Any, message: str, option: str
) -> None:
    path = tmp_path / "data.jsonl"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    data = {"--retain": files.retain} | {option: path}
    options = [part for pair in data.items() for part in pair]
    result = tfrnet("run", "--stream", files.stream, *options, "--state", tmp_path / "new")
    assert result.code == 2
    assert str(path) in result.error
    assert message in result.error
    assert not (tmp_path / "new").exists()


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize("option", ["--retain", "--guard"])
def test_overlap_is_refused_naming_the_lines(
    tfrnet: Tfrnet, files: Files, tmp_path: Path, option: str
) -> None:
    kept = [example.to_dict() for example in tiny.examples(4)]
    kept[1] = kept[3] = tiny.requests(3, size=2)[1].examples[0].to_dict()
    path = write_lines(tmp_path / "data.jsonl", kept)
    data = {"--retain": files.retain} | {option: path}
    options = [part for pair in data.items() for part in pair]
    result = tfrnet("run", "--stream", files.stream, *options, "--state", tmp_path / "new")
    assert result.code == 2
    assert f"{option[2:]} data overlaps request 'request-1'" in result.error
    assert "lines 2, 4 " in result.error
    assert not (tmp_path / "new").exists()


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--set", "budgt=3"], "unknown setting 'budgt'"),
        (["--set", "budget"], "--set takes field=value"),
        (["--set", "budget=-1"], "budget must be at least 0, not -1"),
        (["--set", "budget=many"], "budget must be a whole number, not 'many'"),
        (["--set", "max_sparsity=1.5"], "max_sparsity must be between 0 and 1, not 1.5"),
        (["--set", "guard_relative=nan"], "guard_relative must be a finite number"),
        (["--set", "use_guard=perhaps"], "use_guard must be true or false"),
        (["--set", "step=jump"], "step must be select or fisher"),
        (["--preset", "best"], "unknown preset 'best'"),
        (["--batch-size", "0"], "batch-size"),
        (["--keep", "0"], "keep"),
        (["--seed", "x"], "seed"),
        (["--colour", "red"], "--colour"),
        (["extra"], "extra"),
    ],
)
def test_bad_options_are_refused_before_the_model_is_loaded(
    tfrnet: Tfrnet, files: Files, tmp_path: Path, options: list[str], message: str
) -> None:
    opening = files.opening(tmp_path / "new")
    result = tfrnet("run", "--stream", files.stream, *opening, *options)
    assert result.code == 2
    assert message in result.error
    assert result.out == ""
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model", "./nowhere"], "model folder ./nowhere does not exist"),
        (["--model", "nowhere/at-all"], "'nowhere/at-all' is neither a folder here nor"),
        (["--model", "nowhere.gguf"], "model file nowhere.gguf does not exist"),
        (["--set", "target_modules=nothing_proj"], "nothing_proj"),
        (["--set", "layers=99"], "99"),
        (["--dtype", "int3"], "unknown dtype 'int3'"),
        (["--device", "abacus"], "device 'abacus'"),
    ],
)
def test_a_model_that_cannot_be_used_is_one_line(
    tfrnet: Tfrnet, files: Files, tmp_path: Path, options: list[str], message: str
) -> None:
    opening = files.opening(tmp_path / "new")
    result = tfrnet("run", "--stream", files.stream, *opening, *FAST, *options)
    assert result.code == 2
    assert message in result.error
    assert not StateStore.exists(tmp_path / "new")


def test_an_empty_folder_and_another_kind_of_model_are_no_causal_models(
    tfrnet: Tfrnet, files: Files, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert" / "config.json").write_text(
        '{"model_type": "bert", "architectures": ["BertForMaskedLM"]}'
    )
    opening = files.opening(tmp_path / "new")
    result = tfrnet("run", "--stream", files.stream, *opening, "--model", tmp_path / "empty")
    assert (result.code, "holds no config.json" in result.error) == (2, True)
    result = tfrnet("run", "--stream", files.stream, *opening, "--model", tmp_path / "bert")
    assert result.code == 2
    assert "is a BertForMaskedLM, not a causal language model" in result.error


def test_an_answer_longer_than_max_length_is_refused_and_changes_nothing(
    tfrnet: Tfrnet, files: Files, tmp_path: Path
) -> None:
    long = {"id": "long", "examples": [EXAMPLE, {"prompt": "Count:", "answer": "and one " * 300}]}
    path = write_lines(tmp_path / "long.jsonl", [long])
    ledger = (files.state / "ledger.jsonl").read_bytes()
    result = tfrnet("forget", "--request", path, *files.opening())
    assert result.code == 2
    assert "request 'long', example 2: the answer has" in result.error
    assert "max_length 128" in result.error
    assert (files.state / "ledger.jsonl").read_bytes() == ledger


def test_forget_refuses_a_stream(tfrnet: Tfrnet, files: Files) -> None:
    result = tfrnet("forget", "--request", files.stream, *files.opening())
    assert result.code == 2
    assert "holds 3 requests" in result.error
    assert "tfrnet run --stream" in result.error


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize(
    "command",
    [
        ["status"],
        ["history"],
        ["rollback", "--to", "0"],
        ["generate", "--prompt", "x"],
        ["export", "--out", "somewhere"],
    ],
    ids=lambda command: command[0],
)
def test_commands_on_a_folder_without_a_state_say_so(
    tfrnet: Tfrnet, tmp_path: Path, command: list[str]
) -> None:
    result = tfrnet(*command, "--state", tmp_path / "none")
    assert result.code == 2
    assert "holds no state" in result.error
    assert not (tmp_path / "none").exists()


def test_verify_of_no_state_fails(tfrnet: Tfrnet, tmp_path: Path) -> None:
    result = tfrnet("verify", "--state", tmp_path / "none")
    assert result.code == 2
    assert "holds no state" in result.error
    assert not (tmp_path / "none").exists()


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["rollback", "--to", "9"], "generation 9 has never existed"),
        (["rollback", "--to", "-1"], "--to"),
        (["rollback"], "--to"),
        (["generate", "--prompt", " "], "prompt is empty"),
        (["generate", "--prompt", "x", "--generation", "9"], "generation 9 has never existed"),
        (["export", "--out", "x", "--format", "onnx"], "unknown format 'onnx'"),
        (["frget"], "frget"),
    ],
)
def test_bad_arguments_of_other_commands(
    tfrnet: Tfrnet, files: Files, command: list[str], message: str
) -> None:
    state = [] if command == ["frget"] else ["--state", files.state]
    result = tfrnet(*command, *state)
    assert result.code == 2
    assert message in result.error


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize("command", ["status", "history", "rollback", "export", "generate"])
def test_a_damaged_state_is_one_line_that_names_the_file(
    tfrnet: Tfrnet, files: Files, command: str
) -> None:
    ledger = files.state / "ledger.jsonl"
    ledger.write_bytes(ledger.read_bytes().replace(b"accepted", b"rejected", 1))
    options = {"rollback": ["--to", 0], "export": ["--out", "x"], "generate": ["--prompt", "x"]}
    result = tfrnet(command, *options.get(command, []), "--state", files.state)
    assert result.code == 2
    assert f"{ledger} is damaged: line 2" in result.error


def test_another_model_or_other_settings_than_the_states_are_refused(
    tfrnet: Tfrnet, files: Files, tmp_path: Path, tokenizer
) -> None:
    other = tmp_path / "other"
    tiny.make_model("llama", seed=1).save_pretrained(other)
    tokenizer.save_pretrained(other)
    run = ["run", "--stream", files.stream, *files.opening()]
    assert "another base model" in tfrnet(*run, "--model", other).error
    assert "was made with seed 0, not 3" in tfrnet(*run, "--seed", 3).error
    assert "its settings are fixed" in tfrnet(*run, "--preset", "paper").error
    for command in (["export", "--out", tmp_path / "x"], ["generate", "--prompt", "x"]):
        result = tfrnet(*command, "--state", files.state, "--model", other)
        assert (result.code, "another base model" in result.error) == (2, True)
    assert not (tmp_path / "x").exists()


# Real processes

SCRIPT = Path(sys.executable).with_name("tfrnet")


def test_output_in_a_pipe_is_plain_lines(files: Files, tmp_path: Path) -> None:
    environment = os.environ | {"FORCE_COLOR": "", "COLUMNS": "40"}
    environment.pop("FORCE_COLOR")
    finished = subprocess.run(
        [str(part) for part in (SCRIPT, "run", "--stream", files.stream, *files.opening())],
        capture_output=True,
        env=environment,
    )
    assert finished.returncode == 0
    assert finished.stderr == b""
    assert b"\x1b" not in finished.stdout
    assert b"\r" not in finished.stdout
    assert len(finished.stdout.splitlines()) == 3  # not wrapped at 40 columns


def children_seconds() -> float:
    """Return the CPU time of finished child processes: others at work do not count in it."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize(
    "code",
    [
        "import tfrnet; tfrnet.__version__",
        "import tfrnet; tfrnet.TFRConfig.paper()",
        "import sys; sys.argv = ['tfrnet', '--help']; from tfrnet.cli.main import main; main()",
        "import sys; sys.argv = ['tfrnet', 'run', '--help']; "
        "from tfrnet.cli.main import main; main()",
    ],
    ids=["import", "config", "help", "help of a command"],
)
def test_import_and_help_do_not_load_torch_and_answer_at_once(code: str) -> None:
    check = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(*sorted({'torch', 'transformers', 'numpy', 'safetensors'}"
        " & set(sys.modules)), file=sys.stderr))\n"
    )
    seconds = []
    for _ in range(3):
        started = children_seconds()
        finished = subprocess.run(
            [sys.executable, "-c", check + code], capture_output=True, text=True
        )
        seconds.append(children_seconds() - started)
        assert finished.returncode == 0, finished.stderr
        assert finished.stderr.split() == []
        if seconds[-1] < 1:
            break
    assert min(seconds) < 1


def test_the_help_names_every_command(tfrnet: Tfrnet) -> None:
    result = tfrnet("--help")
    assert (result.code, result.err) == (0, "")
    commands = ["forget", "run", "status", "history", "verify", "rollback"]
    commands += ["export", "generate", "demo"]
    assert [command for command in commands if command not in result.out] == []


def test_help_takes_under_a_second_from_the_shell() -> None:
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        finished = subprocess.run([SCRIPT, "--help"], capture_output=True)
        seconds.append(time.perf_counter() - started)
        assert finished.returncode == 0
        if seconds[-1] < 1:
            break
    assert min(seconds) < 1


def test_a_reader_that_goes_away_is_no_traceback(files: Files) -> None:
    command = [SCRIPT, "history", "--state", files.state]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()
