"""`generate` and `chat`: without a state, with one, and in a conversation."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from tests.integration.commands import Files, Tfrnet
from tests.serve.running import TEMPLATE

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


@pytest.mark.usefixtures("elsewhere")
def test_a_model_without_a_template_cannot_chat(tfrnet: Tfrnet, files: Files) -> None:
    result = tfrnet("chat", "--model", files.model, *SHORT)
    assert (result.code, "no chat template" in result.error) == (2, True)
