"""What `tfrnet split` and `tfrnet eval` refuse, in one line, and how they end."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.integration.commands import NOWHERE, TOFU, Tfrnet, evaluated
from tfrnet.data.sources import Source
from tfrnet.data.tasks import find_task

pytestmark = pytest.mark.usefixtures("cache")


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tasks", "boolq,wmdp"], "unknown task 'wmdp'; choose from arithmetic, boolq, knowundo"),
        (["--tasks", ","], "--tasks names no task"),
        ([], "--tasks"),
        (["--tasks", "boolq:x"], "boolq takes no options"),
        (["--tasks", "arithmetic:7da"], "unknown arithmetic sub-task '7da'"),
        (["--tasks", "boolq", "--limit", 0], "--limit 0 leaves nothing to evaluate"),
        (["--tasks", "boolq", "--limit", "many"], "--limit"),
        (["--tasks", "openbookqa", "--limit", 101], "(test) has only 100"),
        (["--tasks", "tofu", "--limit", 21], "TOFU has only 20"),
        (["--tasks", "privacy", "--limit", 21], "the privacy sets has only 20"),
        (["--tasks", "boolq", "--limit", 5, "--full"], "give --limit or --full, not both"),
        (["--tasks", "boolq", "--items", "last"], "--items must be sample or first, not 'last'"),
        (["--tasks", "boolq", "--truncation", "right"], "--truncation must be passage_left or lm_"),
        (["--tasks", "tofu", "--tofu-template", "llama"], "--tofu-template must be qa or chat"),
        (["--tasks", "tofu", "--tofu-boundary", "x"], "--tofu-boundary must be open-unlearning or"),
        (
            ["--tasks", "tofu", "--truth-ratio", "x"],
            "--truth-ratio must be geometric or ",
        ),
        (["--tasks", "boolq", "--shots", 999], "solved examples are asked for, but boolq has only"),
        (["--tasks", "boolq", "--shots", -1], "--shots"),
        (["--tasks", "boolq", "--max-length", 3], "--max-length"),
        (["--tasks", "boolq", "--batch-size", 0], "--batch-size"),
        (["--tasks", "boolq", "--source", "web"], "unknown source 'web'"),
        (["--tasks", "boolq", "--source", "generated"], "leave out --source or --data-dir"),
        (["--tasks", "boolq", "--generation", 1], "--generation needs --state"),
        (["--tasks", "boolq", "--state", "no-state"], "holds no state"),
        (["--tasks", "boolq", "--split", "no-split"], "'tfrnet split --task boolq --out no-split'"),
        (["--tasks", "boolq", "--forgotten", "no-file"], "no-file does not exist"),
        (["--tasks", "robustness"], "give --state FOLDER"),
        (["--tasks", "boolq", "--colour"], "--colour"),
    ],
)
def test_bad_options_are_refused_before_the_model_is_loaded(
    tfrnet: Tfrnet, data: Path, options: list[object], message: str
) -> None:
    result = tfrnet(*evaluated(data, NOWHERE, *options))
    assert (result.code, result.out) == (2, "")
    assert message in result.error


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "give --split FOLDER, which 'tfrnet split' makes"),
        (["--attacks", "unmask,tickle"], "unknown attack 'tickle'; choose from few-shot"),
        (["--attacks", ""], "--attacks names no attack; choose from few-shot"),
        (["--relearn-steps", "0,few"], "--relearn-steps takes numbers such as 0,5,10"),
        (["--relearn-seeds", "0"], "--relearn-seeds"),
    ],
)
def test_bad_options_of_robustness_are_refused_before_the_model_is_loaded(
    tfrnet: Tfrnet, data: Path, split: Path, state: Path, options: list[str], message: str
) -> None:
    where = ["--state", state] if not options else ["--state", state, "--split", split]
    result = tfrnet(*evaluated(data, NOWHERE, "--tasks", "robustness", *where, *options))
    assert (result.code, result.out) == (2, "")
    assert message in result.error


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize(
    "options",
    [["--relearn-steps", "5,0"], ["--relearn-steps", "-1,5"], ["--limit", "4"]],
)
def test_what_no_attack_could_do_is_refused_before_the_model_is_loaded(
    tfrnet: Tfrnet, data: Path, split: Path, state: Path, options: list[str]
) -> None:
    where = ["--tasks", "robustness", "--state", state, "--split", split]
    assert "a model was loaded" not in tfrnet(*evaluated(data, NOWHERE, *where, *options)).error


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--relearn-steps", "5,0"], "steps must be ascending"),
        (["--limit", "4"], "--limit 4 is larger than the 3 forgotten items"),
    ],
)
def test_what_no_attack_could_do_is_one_line(
    tfrnet: Tfrnet,
    data: Path,
    tiny_folder: Path,
    split: Path,
    state: Path,
    options: list[str],
    message: str,
) -> None:
    where = ["--tasks", "robustness", "--attacks", "relearn", "--state", state, "--split", split]
    result = tfrnet(*evaluated(data, tiny_folder, *where, *options))
    assert (result.code, result.out) == (2, "")
    assert message in result.error


def test_a_model_or_an_oracle_that_is_not_there_is_one_line(
    tfrnet: Tfrnet, data: Path, tiny_folder: Path
) -> None:
    result = tfrnet(*evaluated(data, NOWHERE, "--tasks", "boolq", "--limit", 2))
    assert (result.code, result.out) == (2, "")
    assert "no-such-model does not exist" in result.error
    result = tfrnet(*evaluated(data, tiny_folder, *TOFU, "--oracle", NOWHERE))
    assert (result.code, result.out) == (2, "")
    assert "no-such-model does not exist" in result.error


def test_chat_without_a_template_is_one_line(tfrnet: Tfrnet, data: Path, tiny_folder: Path) -> None:
    result = tfrnet(*evaluated(data, tiny_folder, *TOFU, "--tofu-template", "chat"))
    assert (result.code, result.out) == (2, "")
    assert "the tokenizer has no chat template; use the template qa" in result.error


@pytest.mark.usefixtures("no_model")
def test_missing_data_say_what_to_do(tfrnet: Tfrnet, data: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    result = tfrnet(*evaluated(tmp_path / "empty", NOWHERE, "--tasks", "boolq"))
    assert result.code == 2
    assert "has neither boolq/dev.jsonl nor boolq/dev.jsonl.gz" in result.error
    result = tfrnet(*evaluated(tmp_path / "none", NOWHERE, "--tasks", "boolq"))
    assert result.code == 2
    assert "none does not exist or is not a folder" in result.error


@pytest.mark.usefixtures("no_model")
def test_a_split_of_other_data_is_refused(
    tfrnet: Tfrnet, data: Path, split: Path, tmp_path: Path
) -> None:
    other = shutil.copytree(data, tmp_path / "other")
    path = other / "openbookqa" / "train.jsonl"
    path.write_text(path.read_text().replace("keeper", "warden"))
    result = tfrnet(*evaluated(other, NOWHERE, "--tasks", "openbookqa", "--split", split))
    assert result.code == 2
    assert "differs in these datasets" in result.error


# What was forgotten is not evaluated


def requests_file(path: Path, items: list) -> Path:
    request = {"id": "a", "examples": [item.example().to_dict() for item in items]}
    path.write_text(json.dumps(request) + "\n")
    return path


@pytest.mark.usefixtures("no_model")
def test_an_evaluation_of_forgotten_examples_is_refused(
    tfrnet: Tfrnet, data: Path, tmp_path: Path
) -> None:
    items = find_task("boolq").load("validation", Source("folder", data))
    path = requests_file(tmp_path / "requests.jsonl", [items[1]])
    options = ["--tasks", "boolq", "--limit", 3, "--items", "first", "--forgotten", path]
    result = tfrnet(*evaluated(data, NOWHERE, *options))
    assert (result.code, result.out) == (2, "")
    assert "evaluation set of boolq overlaps request 'a'" in result.error


@pytest.mark.usefixtures("no_model")
def test_an_evaluation_of_forgotten_examples_is_refused_with_shots_too(
    tfrnet: Tfrnet, data: Path, tmp_path: Path
) -> None:
    items = find_task("boolq").load("validation", Source("folder", data))
    path = requests_file(tmp_path / "requests.jsonl", [items[1]])
    options = ["--tasks", "boolq", "--limit", 3, "--items", "first", "--forgotten", path]
    result = tfrnet(*evaluated(data, NOWHERE, *options, "--shots", 1))
    assert "overlaps request 'a'" in result.error


def test_other_forgotten_examples_do_not_matter(
    tfrnet: Tfrnet, data: Path, tiny_folder: Path, split: Path, tmp_path: Path
) -> None:
    """A split's own forgotten items are meant to be evaluated."""
    items = find_task("boolq").load("validation", Source("folder", data))
    path = requests_file(tmp_path / "requests.jsonl", [items[5]])
    options = ["--tasks", "boolq", "--limit", 3, "--items", "first", "--forgotten", path]
    assert tfrnet(*evaluated(data, tiny_folder, *options)).code == 0
    options = ["--tasks", "openbookqa", "--split", split]
    forgotten = ["--forgotten", split / "requests.jsonl"]
    assert tfrnet(*evaluated(data, tiny_folder, *options, *forgotten)).code == 0


# Samples that cannot be written, and Ctrl-C


def test_samples_that_cannot_be_written_are_one_line(
    tfrnet: Tfrnet, data: Path, tiny_folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "none" / "samples.jsonl"
    options = ["--tasks", "boolq", "--limit", 2, "--samples", path]
    result = tfrnet(*evaluated(data, tiny_folder, *options))
    assert result.code == 2
    assert f"{path} cannot be written" in result.error


@pytest.mark.usefixtures("no_model")
def test_samples_that_cannot_be_written_are_refused_before_the_model_is_loaded(
    tfrnet: Tfrnet, data: Path, tmp_path: Path
) -> None:
    options = ["--tasks", "boolq", "--limit", 2, "--samples", tmp_path / "none" / "samples.jsonl"]
    assert "cannot be written" in tfrnet(*evaluated(data, NOWHERE, *options)).error


def test_ctrl_c_is_one_line_and_130(
    tfrnet: Tfrnet, data: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*arguments: object, **named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tfrnet.evaluation.evaluator.score_answers", interrupt)
    result = tfrnet(*evaluated(data, tiny_folder, "--tasks", "boolq", "--limit", 2))
    assert (result.code, result.out) == (130, "")
    (line,) = result.err.splitlines()
    assert "interrupted" in line


def test_help_names_the_commands_and_their_options(tfrnet: Tfrnet) -> None:
    assert all(name in tfrnet("--help").out for name in ("eval", "split"))
    text = tfrnet("eval", "--help").out
    for option in ("--tasks", "--state", "--limit", "--oracle", "--split", "--samples", "--json"):
        assert option in text
