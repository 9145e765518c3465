"""Bad input to the command line: exit code 2, one line, before any model is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import tiny
from tests.integration.commands import FAST, Files, Tfrnet, write_lines
from tfrnet.state.store import StateStore

EXAMPLE = {"prompt": "Who?", "answer": "Me"}

BAD_REQUESTS = [
    ("empty file", "", "contains no request"),
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
        ("", "contains no example"),
        ("\n\n", "contains no example"),
        ("{", ":1: not JSON"),
        ('{"text": "fine"}\n{"prompt": 1, "answer": "x"}', ":2: prompt must be text"),
        (b"\xff\xfe", ":1: not UTF-8 text"),
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
        (["--model", "nowhere/at-all"], "'nowhere/at-all' is not a folder here, and the hub"),
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
def test_a_damaged_state_is_one_line_that_names_the_file_and_the_way_out(
    tfrnet: Tfrnet, files: Files, command: str
) -> None:
    ledger = files.state / "ledger.jsonl"
    lines = ledger.read_bytes().splitlines(keepends=True)
    # Only these two need what was before the last line.
    number = 2 if command in ("history", "rollback") else len(lines)
    lines[number - 1] = lines[number - 1].replace(b"accepted", b"rejected", 1)
    ledger.write_bytes(b"".join(lines))
    options = {"rollback": ["--to", 0], "export": ["--out", "x"], "generate": ["--prompt", "x"]}
    result = tfrnet(command, *options.get(command, []), "--state", files.state)
    assert result.code == 2
    assert f"{ledger} is damaged: line {number}" in result.error
    assert result.error.endswith("; 'tfrnet repair' says what can be saved")


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
