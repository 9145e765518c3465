"""An adapter comes and goes, and nothing of it stays."""

from __future__ import annotations

import pytest
import torch

from tests import tiny
from tfrnet.models.lora import LoraOptions, lora_layers, put_lora_on, take_lora_off


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_an_adapter_comes_and_goes(architecture, recwarn):
    model = tiny.make_model(architecture)
    modules = dict(model.named_modules())
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    put_lora_on(model, LoraOptions(2, 4))
    assert torch.equal(torch.rand(1), expected)  # nobody else's random numbers are used up
    assert lora_layers(model)
    assert all(".lora_" in name for name, p in model.named_parameters() if p.requires_grad)
    take_lora_off(model)
    assert dict(model.named_modules()) == modules
    assert not hasattr(model, "peft_config")
    assert not [each for each in recwarn if "fan_in_fan_out" in str(each.message)]


def test_the_seed_says_where_an_adapter_starts():
    def factors(seed):
        model = tiny.make_model()
        put_lora_on(model, LoraOptions(2, 4, ("q_proj",), seed))
        return [p for name, p in model.named_parameters() if "lora_A" in name]

    first, again, other = factors(1), factors(1), factors(2)
    assert all(map(torch.equal, first, again))
    assert not any(map(torch.equal, first, other))
