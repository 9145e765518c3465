import json
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model

from tests import tiny
from tfrnet.core.errors import InputError
from tfrnet.models.cache import CHECKED
from tfrnet.models.load import load_model, model_folder


@pytest.fixture
def adapter(tmp_path, tiny_folder, monkeypatch):
    monkeypatch.setenv("TFRNET_CACHE", str(tmp_path / "cache"))
    base = load_model(str(tiny_folder)).model
    torch.manual_seed(0)
    model = get_peft_model(base, LoraConfig(r=2, target_modules="all-linear"))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_()
    folder = tmp_path / "adapter"
    model.save_pretrained(folder)
    config = json.loads((folder / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = str(tiny_folder)
    (folder / "adapter_config.json").write_text(json.dumps(config))
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
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(config | {"lora_alpha": 64}))
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
