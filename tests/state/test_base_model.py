"""The base model's name carries no path, and the model is found again all the same."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests import tiny
from tests.state.made_up import make_state
from tfrnet.models.load import load_model
from tfrnet.session import Session
from tfrnet.state.base_model import bare_name, remember_place, where_model_lies
from tfrnet.state.check import Check
from tfrnet.state.layout import Layout
from tfrnet.state.store import StateStore
from tfrnet.state.verify import verify


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("smollm2-135m", "smollm2-135m"),
        ("HuggingFaceTB/SmolLM2-135M", "HuggingFaceTB/SmolLM2-135M"),
        ("/home/jane/secret project/model-v3", "model-v3"),
        ("/data/models/model.gguf", "model.gguf"),
        ("~/models/mine", "mine"),
        ("./mine", "mine"),
        ("../models/mine", "mine"),
    ],
)
def test_a_name_carries_no_path(model: str, name: str) -> None:
    assert bare_name(model) == name


def test_a_folder_that_is_there_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models" / "mine").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert bare_name("models/mine") == "mine"
    layout = Layout(tmp_path)
    remember_place(layout, "models/mine")
    assert where_model_lies(layout, "mine") == str(tmp_path / "models" / "mine")
    assert layout.base_model.stat().st_mode & 0o777 == 0o600
    remember_place(layout, "org/on-the-hub")  # no folder here: nothing to note
    assert where_model_lies(layout, "mine") == str(tmp_path / "models" / "mine")


@pytest.mark.slow
def test_every_changed_byte_of_the_note_is_found_and_a_damaged_note_is_not_followed(
    tmp_path: Path,
) -> None:
    layout = Layout(make_state(tmp_path / "state", commits=1))
    (tmp_path / "mine").mkdir()
    remember_place(layout, str(tmp_path / "mine"))
    whole = layout.base_model.read_bytes()
    assert failures(layout.folder) == []
    for place in range(len(whole)):
        for bit in range(8):
            data = bytearray(whole)
            data[place] ^= 1 << bit
            layout.base_model.write_bytes(data)
            (failed,) = failures(layout.folder)
            assert failed.detail == (
                f"{layout.base_model} is damaged; it is written anew when you next give --model"
            )
            assert where_model_lies(layout, "mine") == "mine"
    remember_place(layout, str(tmp_path / "mine"))
    assert failures(layout.folder) == []
    assert layout.base_model.read_bytes() == whole


def test_a_note_of_before_is_followed_and_written_anew(tmp_path: Path) -> None:
    layout = Layout(make_state(tmp_path / "state", commits=1))
    (tmp_path / "mine").mkdir()
    layout.base_model.write_text(str(tmp_path / "mine"))
    assert failures(layout.folder) == []
    assert where_model_lies(layout, "mine") == str(tmp_path / "mine")
    remember_place(layout, str(tmp_path / "mine"))
    assert layout.base_model.read_bytes().startswith(b"{")


def failures(folder: Path) -> list[Check]:
    return [check for check in verify(folder, None) if not check.passed]


def test_a_state_finds_its_model_again_and_tells_nobody_where(
    tiny_folder: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    with Session(*load_model(str(tiny_folder), device="cpu"), state, tiny.examples(10)):
        pass
    store = StateStore.open(state)
    assert store.manifest.model == tiny_folder.name
    assert store.model == str(tiny_folder)
    said = "".join(
        path.read_text() for path in state.rglob("*") if path.suffix in (".json", ".jsonl")
    )
    assert str(tiny_folder.parent) not in said


def test_a_new_place_is_noted(tiny_folder: Path, tmp_path: Path) -> None:
    state, moved = tmp_path / "state", tmp_path / "moved"
    loaded = load_model(str(tiny_folder), device="cpu")
    with Session(*loaded, state, tiny.examples(10)):
        pass
    shutil.copytree(tiny_folder, moved)
    with Session(*loaded, state, tiny.examples(10), model_name=str(moved)):
        pass
    assert StateStore.open(state).model == str(moved)


def test_a_state_of_before_keeps_its_path_and_shows_the_name_alone(tmp_path: Path) -> None:
    folder = Path(__file__).parents[1] / "fixtures" / "states" / "tfr-default"
    state = Path(shutil.copytree(folder, tmp_path / "state"))
    made_with = json.loads((state / "manifest.json").read_text())["model"]
    assert StateStore.open(state).model == made_with
