"""`tfrnet prepare` at the command line: what it writes, and what it refuses before training."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.datasets import made_up_folder
from tests.integration.commands import Tfrnet
from tfrnet.models.load import load_model

RECIPE = ["prepare", "--recipe", "smollm2-tofu-full", "--limit", 4, "--epochs", 1]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_up_folder(tmp_path_factory.mktemp("data"))


def test_an_adapter_of_a_relative_base_is_loaded_from_anywhere(
    tfrnet: Tfrnet,
    tiny_folder: Path,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tiny_folder.parent)
    monkeypatch.setenv("TFRNET_CACHE", str(tmp_path / "cache"))
    out = tmp_path / "new" / "adapter"
    made = tfrnet(*RECIPE, "--model", tiny_folder.name, "--data-dir", data, "--out", out)
    assert made.code == 0, made.err
    monkeypatch.chdir(tmp_path)
    assert load_model(str(out)).model.config.model_type == "llama"
    log = json.loads((out / "training.json").read_text())
    assert (log["base"], log["dtype"]) == (str(tiny_folder), "float32")


def test_the_command_on_the_card_makes_the_model_again(
    tfrnet: Tfrnet, tiny_folder: Path, data: Path, tmp_path: Path
) -> None:
    first = tmp_path / "first"
    more = ["--merge", "--dtype", "bfloat16", "--data-dir", data, "--out", first]
    assert tfrnet(*RECIPE, "--model", tiny_folder, *more).code == 0
    card = (first / "README.md").read_text("utf-8")
    found = re.search(r"^    (tfrnet prepare .*)$", card, re.MULTILINE)
    assert found
    words = shlex.split(found[1])[1:]
    words[words.index("--out") + 1] = str(tmp_path / "again")
    words[words.index("--data-dir") + 1] = str(data)
    assert tfrnet(*words).code == 0
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("first", "again")]
    assert weights[0] == weights[1]


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (["--learning-rate", 0], "--learning-rate must be a finite number above 0, but is 0"),
        (["--learning-rate", "nan"], "--learning-rate must be a finite number above 0, but is nan"),
        (["--without", ","], "--without ',' names no seeds"),
        (["--out", "."], "is the folder you are in"),
        (["--out", "/proc/x"], "cannot be written"),
    ],
)
def test_it_is_refused_before_the_model_is_loaded(
    tfrnet: Tfrnet,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    more: list[object],
    problem: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    given = [*RECIPE, "--model", "./no-such-model", "--data-dir", data, "--out", "new", *more]
    made = tfrnet(*given)
    assert (made.code, problem in made.error) == (2, True)
    assert list(tmp_path.iterdir()) == []
