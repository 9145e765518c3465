"""`generate` and `chat`: without a state, with one, and in a conversation."""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from tests.integration.commands import Files, Tfrnet
from tests.integration.listening import Said, in_this_process
from tests.serve.running import TEMPLATE
from tfrnet.core.text import printable

SHORT = ["--max-new-tokens", 6, "--device", "cpu"]


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("elsewhere")
def test_without_a_state_the_model_answers_alone(tfrnet: Tfrnet, files: Files) -> None:
    options = ["--prompt", "Item 3 of the", "--prompt", "red", "--model", files.model, *SHORT]
    result = tfrnet("generate", *options)
    assert (result.code, result.err) == (0, "")
    starts = [line.split()[0] for line in result.out.splitlines() if line]
    assert starts == ["prompt", "answer"] * 2
    alone = tfrnet("generate", *options, "--json").json
    assert alone["state"] is None
    both = tfrnet("generate", *options, "--state", files.state, "--json").json
    assert [row["before"] for row in alone["generations"]] == [
        row["before"] for row in both["generations"]
    ]
    assert all("after" not in row for row in alone["generations"])


def test_a_state_in_its_usual_place_is_used(tfrnet: Tfrnet, files: Files, elsewhere: Path) -> None:
    shutil.copytree(files.state, elsewhere / "tfrnet-state")
    options = ["generate", "--prompt", "red", *SHORT, "--json"]
    assert "after" in tfrnet(*options).json["generations"][0]
    assert (
        "after"
        not in tfrnet(*options, "--untouched", "--model", files.model).json["generations"][0]
    )


@pytest.fixture
def chatty(files: Files, tmp_path: Path) -> Path:
    """A model with a chat template."""
    folder = Path(shutil.copytree(files.model, tmp_path / "chatty"))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.usefixtures("elsewhere")
def test_a_conversation_from_a_pipe(
    tfrnet: Tfrnet, chatty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("the red box\nand the old one\n\nnot asked\n"))
    result = tfrnet("chat", "--model", chatty, *SHORT)
    assert (result.code, result.err) == (0, "")
    starts = [line.split()[0] for line in result.out.splitlines() if line]
    assert starts == ["prompt", "answer"] * 2
    monkeypatch.setattr("sys.stdin", io.StringIO("the red box\nand the old one\n"))
    turns = tfrnet("chat", "--model", chatty, *SHORT, "--json").json["turns"]
    assert [turn["prompt"] for turn in turns] == ["the red box", "and the old one"]
    # The second answer is one to the whole conversation.
    tokenizer = AutoTokenizer.from_pretrained(chatty)
    said = [
        {"role": "user", "content": "the red box"},
        {"role": "assistant", "content": turns[0]["before"]},
        {"role": "user", "content": "and the old one"},
    ]
    prompt = tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
    options = ["generate", "--prompt", prompt, "--model", chatty, *SHORT, "--json"]
    assert tfrnet(*options).json["generations"][0]["before"] == turns[1]["before"]


@pytest.fixture
def in_terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    return in_this_process(terminal=True)


def side_by_side(text: str) -> list[list[str]]:
    """Return the columns of each row of the last table that a terminal was shown."""
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "")
    _, heads, rows = plain.rpartition("before ")
    table = heads + rows.rstrip().partition("\n\n")[0]
    return [[cell.strip() for cell in re.split("[│┃]", line)] for line in table.splitlines()]


def shown_answer(text: str) -> str:
    return printable(" ".join(text.split()))


def test_before_and_after_stand_side_by_side_in_a_terminal(
    in_terminal: Callable[..., Said], tfrnet: Tfrnet, files: Files
) -> None:
    options = ["generate", "--prompt", "red", "--state", files.state, *SHORT]
    (row,) = tfrnet(*options, "--json").json["generations"]
    said = in_terminal(*options)
    assert said.code == 0
    assert "\x1b[" in said.text  # drawn again and again while the answers come
    heads, _, answers = side_by_side(said.text)[:3]
    assert heads == ["before", "after"]
    assert answers == [shown_answer(row[name]) for name in heads]


def test_a_conversation_stands_side_by_side_in_a_terminal(
    in_terminal: Callable[..., Said],
    tfrnet: Tfrnet,
    files: Files,
    chatty: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = ["chat", "--model", chatty, "--state", files.state, *SHORT]
    monkeypatch.setattr("sys.stdin", io.StringIO("the red box\n"))
    (turn,) = tfrnet(*options, "--json").json["turns"]
    monkeypatch.setattr("sys.stdin", io.StringIO("the red box\n"))
    said = in_terminal(*options)
    assert said.code == 0
    heads, _, answers = side_by_side(said.text)[:3]
    assert heads == ["before", "after"]
    assert answers == [shown_answer(turn[name]) for name in heads]


@pytest.mark.usefixtures("elsewhere")
def test_a_model_without_a_template_cannot_chat(tfrnet: Tfrnet, files: Files) -> None:
    result = tfrnet("chat", "--model", files.model, *SHORT)
    assert (result.code, "no chat template" in result.error) == (2, True)


@pytest.mark.parametrize(
    "said",
    [
        lambda: io.StringIO("\udcff\n"),  # as Python reads it in the C locale
        lambda: io.TextIOWrapper(io.BytesIO(b"\xff\n"), "utf-8"),
    ],
    ids=["let through", "refused by Python"],
)
@pytest.mark.usefixtures("elsewhere")
def test_what_is_said_has_to_be_utf8(
    tfrnet: Tfrnet, chatty: Path, monkeypatch: pytest.MonkeyPatch, said: Callable[[], io.TextIOBase]
) -> None:
    monkeypatch.setattr("sys.stdin", said())
    result = tfrnet("chat", "--model", chatty, *SHORT)
    assert result.code == 2
    assert result.error == "what you say on standard input is not UTF-8 text"


@pytest.mark.usefixtures("no_model")
def test_a_prompt_has_to_be_utf8(tfrnet: Tfrnet, files: Files) -> None:
    result = tfrnet("generate", "--prompt", "\udcff", "--model", files.model)
    assert (result.code, result.error) == (2, "--prompt is not UTF-8 text")
