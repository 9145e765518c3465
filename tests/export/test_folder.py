"""The folder that an export leaves, of the dense format above all."""

import errno
import json
import os
import re
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests import tiny
from tests.exports import ORIGIN, closed_export, export_as, masked
from tfrnet.core.errors import CheckFailedError, InputError, StateError
from tfrnet.export import parity
from tfrnet.export.new_folder import new_folder, refuse_unwritable
from tfrnet.masking.channels import find_channels
from tfrnet.methods.tfr.config import TFRConfig

pytestmark = pytest.mark.filterwarnings("ignore::tfrnet.core.errors.TfrnetWarning")
IDS = torch.arange(1, 25).reshape(2, 12)


@torch.no_grad()
def logits(model):
    return model(IDS).logits.double()


@pytest.fixture
def masked_llama():
    model = tiny.make_model("llama")
    with masked(model) as mask:
        yield mask


def test_an_export_is_an_ordinary_model_folder(masked_llama, tokenizer, tmp_path):
    folder = tmp_path / "new" / "exported"
    difference = export_as("dense", masked_llama, tokenizer, folder)
    assert difference < 1e-5
    loaded = AutoModelForCausalLM.from_pretrained(folder).eval()
    wanted = logits(masked_llama.model)
    assert (logits(loaded) - wanted).norm() < 1e-5 * wanted.norm()
    assert (
        AutoTokenizer.from_pretrained(folder)("old box").input_ids == tokenizer("old box").input_ids
    )
    facts = json.loads((folder / "tfrnet.json").read_text())
    assert (facts["format"], facts["base_model"]) == ("dense", "somewhere/base")
    assert [path.name for path in folder.parent.iterdir()] == ["exported"]


@pytest.mark.parametrize(
    ("settings", "guard"),
    [
        ({}, "at most 5 % plus 0.02 nats"),
        ({"guard_relative": 0.15, "guard_absolute": 0.0}, "at most 15 %"),
        ({"use_guard": False}, "off"),
    ],
)
def test_the_card_says_what_the_guard_allows(
    masked_llama, tokenizer, tmp_path, settings: dict, guard: str
) -> None:
    origin = replace(ORIGIN, config=TFRConfig(**settings).to_dict())
    export_as("dense", masked_llama, tokenizer, tmp_path / "out", origin)
    card = (tmp_path / "out" / "README.md").read_text()
    (row,) = re.findall(r"^\| guard \| (.*) \|$", card, re.MULTILINE)
    assert row == (guard if guard == "off" else f"a request may raise its loss by {guard}")


def test_others_can_read_it(masked_llama, tokenizer, tmp_path):
    assert closed_export("dense", masked_llama, tokenizer, tmp_path / "out") == {0o644}
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
def test_every_architecture_can_be_exported(architecture, tokenizer, tmp_path):
    model = tiny.make_model(architecture)
    with masked(model) as mask:
        export_as("dense", mask, tokenizer, tmp_path / "out")
        wanted = logits(model)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    assert (logits(loaded) - wanted).norm() < 1e-5 * wanted.norm()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_an_export_keeps_the_dtype(dtype, tokenizer, tmp_path):
    model = tiny.make_model("llama", dtype)
    with masked(model) as mask:
        export_as("dense", mask, tokenizer, tmp_path / "out")
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype="auto").dtype == dtype


def test_an_export_does_not_change_the_live_model(masked_llama, tokenizer, tmp_path):
    before = logits(masked_llama.model)
    weights = {name: value.clone() for name, value in masked_llama.model.state_dict().items()}
    export_as("dense", masked_llama, tokenizer, tmp_path / "out")
    assert torch.equal(logits(masked_llama.model), before)
    found = masked_llama.model.state_dict()
    assert all(torch.equal(found[name], value) for name, value in weights.items())


def test_an_empty_folder_is_used(masked_llama, tokenizer, tmp_path):
    (tmp_path / "out").mkdir()
    export_as("dense", masked_llama, tokenizer, tmp_path / "out")
    assert (tmp_path / "out" / "config.json").is_file()


def test_a_folder_with_files_is_refused_and_left_alone(masked_llama, tokenizer, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="not empty"):
        export_as("dense", masked_llama, tokenizer, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_link_is_refused_and_left_alone(masked_llama, tokenizer, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "mine")
    with pytest.raises(InputError, match="is a link"):
        export_as("dense", masked_llama, tokenizer, tmp_path / "out")
    assert (tmp_path / "out").is_symlink()
    assert list((tmp_path / "mine").iterdir()) == []


def test_nothing_is_written_into_a_state(masked_llama, tokenizer, tmp_path):
    for name in ("manifest.json", "ledger.jsonl"):
        (tmp_path / name).touch()
    with pytest.raises(InputError, match="lies in the state"):
        export_as("dense", masked_llama, tokenizer, tmp_path / "deep" / "out")
    assert not (tmp_path / "deep").exists()


def test_a_file_in_the_way_is_refused_and_left_alone(masked_llama, tokenizer, tmp_path):
    path = tmp_path / "out"
    path.write_text("mine")
    with pytest.raises(InputError, match="exists"):
        export_as("dense", masked_llama, tokenizer, path)
    assert path.read_text() == "mine"


def test_a_failed_check_leaves_nothing_behind(masked_llama, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(parity, "TOLERANCE", {torch.float32: -1.0})
    with pytest.raises(CheckFailedError, match="differ"):
        export_as("dense", masked_llama, tokenizer, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_fold_that_went_wrong_is_noticed(masked_llama, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(masked_llama, "folded", dict)
    with pytest.raises(CheckFailedError, match="differ"):
        export_as("dense", masked_llama, tokenizer, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_small_change_that_is_left_out_is_noticed_in_coarse_numbers(
    tokenizer, tmp_path, monkeypatch
):
    model = tiny.make_model("llama").bfloat16()
    torch.manual_seed(0)
    channels = find_channels(model).total
    with masked(model, 1 - 0.02 * torch.rand(channels)) as mask:
        assert 0 < export_as("dense", mask, tokenizer, tmp_path / "right") < 5e-2
        monkeypatch.setattr(mask, "folded", dict)
        with pytest.raises(CheckFailedError, match="are those of the untouched model"):
            export_as("dense", mask, tokenizer, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["right"]


def test_logits_that_are_not_finite_fail_the_check(masked_llama, tokenizer, tmp_path):
    with torch.no_grad():
        masked_llama.model.model.norm.weight[3] = torch.nan
    with pytest.raises(CheckFailedError):
        export_as("dense", masked_llama, tokenizer, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_a_clear_error(masked_llama, tokenizer, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="cannot be written"):
        export_as("dense", masked_llama, tokenizer, tmp_path / "file" / "out")


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        SafetensorError("No space left on device"),
        Exception("No space left on device"),  # as tokenizers have it
        ValueError("this is no model:\nNo space left on device"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("form", ["dense", "ia3"])
def test_a_full_disk_is_one_line_and_leaves_nothing(
    masked_llama, tokenizer, tmp_path, monkeypatch, form, error
):
    def full(*arguments, **named):
        raise error

    monkeypatch.setattr("tfrnet.export.adapter.save_file", full)
    monkeypatch.setattr(masked_llama.model, "save_pretrained", full)
    with pytest.raises(InputError, match="No space left on device; nothing was written"):
        export_as(form, masked_llama, tokenizer, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_export_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        with new_folder(tmp_path / "out") as partial:
            (partial / "half").write_text("of a model")
            (partial / "inside").mkdir()
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert len(list(tmp_path.iterdir())) == 1
    with new_folder(tmp_path / "out") as partial:
        (partial / "whole").write_text("model")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["whole"]


def test_a_folder_that_no_other_can_replace_is_refused_before_long_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for place in (Path(), tmp_path):
        with pytest.raises(InputError, match="is the folder you are in"):
            refuse_unwritable(place)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    refused = {"link": "is a link", "/proc": "is where a disk is mounted", "/proc/x/y": "written: "}
    for name, problem in refused.items():
        with pytest.raises(InputError, match=problem):
            refuse_unwritable(tmp_path / name)
    refuse_unwritable(tmp_path / "new" / "deeper")
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


def test_two_exports_to_one_folder_are_kept_apart(tmp_path: Path) -> None:
    with (
        new_folder(tmp_path / "out"),
        pytest.raises(StateError, match="in use by this process"),
        new_folder(tmp_path / "out"),
    ):
        pass
    assert (tmp_path / "out").is_dir()
