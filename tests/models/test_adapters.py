import json
import shutil
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from peft import IA3Config, LoraConfig, VBLoRAConfig, get_peft_model
from safetensors.torch import load_file, save_file

from tests import tiny
from tfrnet.core.errors import InputError
from tfrnet.models.adapters import merged_adapter
from tfrnet.models.cache import CHECKED
from tfrnet.models.load import load_model, model_folder


@pytest.fixture
def base(tmp_path, tiny_folder):
    return shutil.copytree(tiny_folder, tmp_path / "base")


def changed(folder, **settings):
    """Change an adapter's config."""
    file = folder / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))


@pytest.fixture
def adapter(tmp_path, base, monkeypatch):
    monkeypatch.setenv("TFRNET_CACHE", str(tmp_path / "cache"))
    torch.manual_seed(0)
    lora = LoraConfig(r=2, target_modules="all-linear")
    model = get_peft_model(load_model(str(base)).model, lora)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_()
    folder = tmp_path / "adapter"
    model.save_pretrained(folder)
    changed(folder, base_model_name_or_path=str(base))
    return folder, model


@torch.no_grad()
def test_an_adapter_folder_is_a_model(adapter):
    folder, model = adapter
    ids = torch.tensor([tiny.make_tokenizer()("Item 3 of the box")["input_ids"]])
    for _ in range(2):  # merged on first use, then from the cache
        found = load_model(str(folder)).model(ids).logits
        assert torch.allclose(found, model(ids).logits, atol=1e-5)


def test_a_changed_adapter_is_merged_anew(adapter):
    folder, _ = adapter
    first = load_model(str(folder)).model.state_dict()
    changed(folder, lora_alpha=64)
    second = load_model(str(folder)).model.state_dict()
    name = "model.layers.0.self_attn.q_proj.weight"
    assert not torch.equal(first[name], second[name])


def test_what_is_wrong_with_an_adapter_is_said(adapter):
    folder, _ = adapter
    (folder / "adapter_model.safetensors").unlink()
    with pytest.raises(InputError, match="names no base model or has no adapter_model"):
        load_model(str(folder))
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(InputError, match=r"adapter_config\.json cannot be read"):
        load_model(str(folder))


def test_one_that_was_merged_with_a_misread_tokenizer_is_merged_again(adapter):
    folder, _ = adapter
    merged = Path(model_folder(str(folder)))
    tokenizer = (merged / "tokenizer.json").read_bytes()
    (merged / CHECKED).unlink()  # as earlier versions left it
    misread = json.loads(tokenizer)
    misread["model"]["merges"] = []
    (merged / "tokenizer.json").write_text(json.dumps(misread))
    assert model_folder(str(folder)) == str(merged)
    assert (merged / "tokenizer.json").read_bytes() == tokenizer


def test_an_adapter_on_a_base_that_lacks_weights_is_refused(adapter, base):
    folder, _ = adapter
    weights = load_file(base / "model.safetensors")
    lacking = "model.layers.1.mlp.down_proj.weight"
    rest = {name: tensor for name, tensor in weights.items() if name != lacking}
    save_file(rest, base / "model.safetensors", {"format": "pt"})
    with pytest.raises(InputError, match=f"cannot be merged into {base}: its weights lack"):
        load_model(str(folder))


def renamed(folder, old, new):
    """Give an adapter's tensors other names."""
    tensors = load_file(folder / "adapter_model.safetensors")
    tensors = {name.replace(old, new): tensor for name, tensor in tensors.items()}
    save_file(tensors, folder / "adapter_model.safetensors", {"format": "pt"})


def test_tensors_that_the_base_has_no_place_for_are_refused(adapter):
    folder, _ = adapter
    renamed(folder, "model.layers.1.", "transformer.layers.1.")
    with pytest.raises(InputError, match=r"it holds \S*transformer\.layers\.1\.\S*, for which"):
        load_model(str(folder))


def test_an_adapter_that_lacks_tensors_is_refused(adapter):
    folder, _ = adapter
    tensors = load_file(folder / "adapter_model.safetensors")
    tensors.popitem()
    save_file(tensors, folder / "adapter_model.safetensors", {"format": "pt"})
    with pytest.raises(InputError, match="it lacks base_model"):
        load_model(str(folder))


@pytest.mark.parametrize(
    "config",
    [
        LoraConfig(r=2, target_modules=["q_proj"], use_dora=True),
        LoraConfig(r=2, target_modules=["q_proj", "embed_tokens"]),
        LoraConfig(r=2, target_modules=["q_proj"], modules_to_save=["lm_head"]),
        LoraConfig(r=2, target_modules=["q_proj"], trainable_token_indices=[3, 5]),
        IA3Config(target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"]),
        VBLoRAConfig(r=2, num_vectors=8, vector_length=16, topk=2, target_modules=["q_proj"]),
    ],
    ids=["dora", "embeddings", "whole modules", "tokens", "ia3", "vectors of a bank"],
)
def test_adapters_of_other_kinds_fit(config, adapter, base):
    folder, _ = adapter
    shutil.rmtree(folder)
    get_peft_model(load_model(str(base)).model, config).save_pretrained(folder)
    load_model(str(folder))


# The base is part of what is merged


def first_weight(name):
    return load_model(str(name)).model.get_input_embeddings().weight


def test_a_base_that_was_trained_again_is_merged_anew(adapter, base):
    folder, _ = adapter
    before = first_weight(folder)
    tiny.make_model("llama", seed=7).save_pretrained(base)
    assert torch.equal(first_weight(folder), first_weight(base))
    assert not torch.equal(first_weight(folder), before)


def test_a_base_with_another_tokenizer_is_merged_anew(adapter, base):
    folder, _ = adapter
    assert load_model(str(folder)).tokenizer.chat_template is None
    (base / "chat_template.jinja").write_text("{{ messages }}")
    assert load_model(str(folder)).tokenizer.chat_template == "{{ messages }}"


def test_another_base_of_the_same_name_is_another_base(adapter, base, tmp_path):
    folder, _ = adapter
    other = tmp_path / "elsewhere" / base.name
    shutil.copytree(base, other)
    tiny.make_model("llama", seed=7).save_pretrained(other)
    merged = {merged_adapter(folder, str(place)) for place in (base, other)}
    assert len(merged) == 2


def test_a_base_that_only_moved_is_not_merged_again(adapter, base, tmp_path):
    folder, _ = adapter
    other = shutil.copytree(base, tmp_path / "moved")
    assert merged_adapter(folder, str(base)) == merged_adapter(folder, str(other))


def test_the_revision_that_an_adapter_names_is_the_one_that_is_merged(
    adapter, base, tmp_path, monkeypatch
):
    folder, _ = adapter
    hub = tmp_path / "hub"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(hub))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    cached = hub / "models--someone--tiny"
    commits = {"main": "a" * 40, "old": "b" * 40}
    for seed, (name, commit) in enumerate(commits.items()):
        (cached / "refs").mkdir(parents=True, exist_ok=True)
        (cached / "refs" / name).write_text(commit)
        shutil.copytree(base, cached / "snapshots" / commit)
        tiny.make_model("llama", seed=seed).save_pretrained(cached / "snapshots" / commit)
    for name in ("main", "old"):
        changed(folder, base_model_name_or_path="someone/tiny", revision=name)
        expected = first_weight(cached / "snapshots" / commits[name])
        assert torch.equal(first_weight(folder), expected)


# Its tokenizer


def test_an_adapters_own_tokenizer_is_the_models(adapter):
    folder, _ = adapter
    first = load_model(str(folder)).tokenizer
    assert first.chat_template is None
    first.chat_template = "{{ messages }}"
    first.save_pretrained(folder)
    assert load_model(str(folder)).tokenizer.chat_template == "{{ messages }}"


@pytest.mark.parametrize("multiple", [None, 64])
@torch.no_grad()
def test_an_adapter_may_bring_tokens_of_its_own(multiple, adapter, base):
    folder, _ = adapter
    shutil.rmtree(folder)
    model, tokenizer = load_model(str(base))
    tokenizer.add_tokens(["<|user|>", "<|end|>"])
    model.resize_token_embeddings(len(tokenizer), pad_to_multiple_of=multiple)
    whole = ["embed_tokens", "lm_head"]
    lora = LoraConfig(r=2, target_modules=["q_proj"], modules_to_save=whole)
    trained = get_peft_model(model, lora)
    trained.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    found = load_model(str(folder))
    ids = found.tokenizer("<|user|>Item 3", return_tensors="pt")["input_ids"]
    assert ids[0, 0] == tiny.VOCABULARY
    assert torch.allclose(found.model(ids).logits, trained(ids).logits, atol=1e-5)


def test_tokens_that_an_adapter_has_no_weights_for_are_the_same_in_every_merge(
    adapter, monkeypatch, tmp_path
):
    folder, _ = adapter
    tokenizer = tiny.make_tokenizer()
    tokenizer.add_tokens(["<|pad|>"])
    tokenizer.save_pretrained(folder)
    found = []
    for name in ("one", "other"):
        monkeypatch.setenv("TFRNET_CACHE", str(tmp_path / name))
        found.append(first_weight(folder))
    assert len(found[0]) == tiny.VOCABULARY + 1
    assert torch.equal(*found)
