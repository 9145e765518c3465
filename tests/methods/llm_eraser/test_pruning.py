"""Pruned channels contribute nothing, and leave nothing behind."""

from __future__ import annotations

import copy

import pytest
import torch

from tests import tiny
from tfrnet.core.errors import InputError
from tfrnet.core.tensors import TensorState
from tfrnet.methods.llm_eraser.pruning import MASK, PrunedEffect, find_mlps
from tfrnet.models.lora import LoraOptions

IDS = torch.arange(1, 31).view(2, 15)
GATED = ["llama", "mistral", "qwen2", "qwen3", "gemma3"]
# (layer, channel) of some pruned channels, none of them in the middle layer.
PRUNED = [(0, 0), (0, 7), (2, 3), (2, 47)]


def logits(model):
    with torch.no_grad():
        return model(IDS).logits


def a_state(effect, factors: bool = True) -> TensorState:
    """Four channels pruned, and an adapter that adds something."""
    generator = torch.Generator().manual_seed(5)
    mask = torch.ones(effect.channels, dtype=torch.uint8)
    for layer, channel in PRUNED:
        mask[layer * 48 + channel] = 0
    values = {
        name: torch.randn(parameter.shape, generator=generator) * 0.1
        for name, parameter in effect.parameters.items()
    }
    return TensorState((values if factors else {}) | {MASK: mask})


def hooks(model) -> int:
    return sum(len(module._forward_pre_hooks) for module in model.modules())


@pytest.mark.parametrize("architecture", GATED)
@pytest.mark.parametrize("targets", ["all-linear", ("q_proj",)])
def test_a_pruned_channel_contributes_exactly_nothing(architecture, targets) -> None:
    model = tiny.make_model(architecture)
    before = logits(model)
    with PrunedEffect(model, LoraOptions(4, 8, targets)) as effect:
        effect.show(a_state(effect))
        pruned = logits(model)
        assert not torch.equal(pruned, before)
        for layer, channel in PRUNED:
            mlp = effect.mlps[layer]
            with torch.no_grad():
                if architecture != "gemma3":
                    # torch's GELU rounds a value otherwise if its neighbour in memory is huge.
                    effect.base_weight(mlp.projection("gate_proj"))[channel] = 1e30
                effect.base_weight(mlp.projection("up_proj"))[channel] = -1e30
                effect.base_weight(mlp.projection("down_proj"))[:, channel] = 1e30
                if targets == "all-linear":
                    effect.parameters[f"{mlp.projection('up_proj')}.lora_B"][channel] = 1e9
                    effect.parameters[f"{mlp.projection('down_proj')}.lora_A"][:, channel] = 1e9
        assert torch.equal(logits(model), pruned)
        # And one that is kept does contribute.
        with torch.no_grad():
            effect.base_weight(effect.mlps[0].projection("down_proj"))[:, 1] += 1
        assert not torch.equal(logits(model), pruned)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_detach_leaves_the_model_as_it_was(dtype) -> None:
    model = tiny.make_model(dtype=dtype)
    twin = copy.deepcopy(model)
    effect = PrunedEffect(model, LoraOptions(4, 8, ("q_proj",)))
    effect.show(a_state(effect))
    assert hooks(model) == 2
    effect.show(TensorState())
    assert hooks(model) == 0
    assert torch.equal(logits(model), logits(twin))
    effect.show(a_state(effect))
    effect.detach()
    assert hooks(model) == 0
    assert torch.equal(logits(model), logits(twin))
    assert [name for name, _ in model.named_modules()] == [n for n, _ in twin.named_modules()]
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True)
    )


@pytest.mark.parametrize("targets", ["all-linear", ("q_proj",)])
def test_an_ordinary_model_with_the_folded_weights_acts_the_same(targets) -> None:
    model, plain = tiny.make_model(), tiny.make_model()
    with PrunedEffect(model, LoraOptions(4, 8, targets)) as effect:
        effect.show(a_state(effect))
        expected = logits(model)
        own = {name: p.detach().clone() for name, p in model.named_parameters()}
        folded = effect.folded()
        assert all(torch.equal(p, own[name]) for name, p in model.named_parameters())
    missing = plain.load_state_dict(folded, strict=False)
    assert not missing.unexpected_keys
    assert torch.allclose(logits(plain), expected, atol=1e-5, rtol=0)
    down = plain.get_submodule("model.layers.2.mlp.down_proj").weight
    assert not down[:, 47].any() and down[:, 46].any()


def test_the_layout_names_factors_and_mlps() -> None:
    with PrunedEffect(tiny.make_model(), LoraOptions(4, 8, ("q_proj",))) as effect:
        layout = effect.layout()
    assert layout[0] == ["model.layers.0.self_attn.q_proj.lora_A", 4 * 32]
    assert layout[-3:] == [[f"model.layers.{i}.mlp", 48] for i in range(3)]


@pytest.mark.parametrize(
    ("architecture", "absent", "there"),
    [
        ("gpt2", "no gate_proj and no up_proj and no down_proj", "mlp.c_fc"),
        ("gpt_neox", "no gate_proj", "mlp.dense_h_to_4h"),
        ("phi3", "no gate_proj and no up_proj;", "mlp.gate_up_proj"),
        ("mixtral", "no gate_proj", "mlp.experts"),
        ("qwen2_moe", "no gate_proj", "mlp.shared_expert.gate_proj"),
    ],
)
def test_a_model_without_gated_mlps_is_refused_untouched(architecture, absent, there) -> None:
    model = tiny.make_model(architecture)
    modules = list(model.modules())
    with pytest.raises(InputError) as error:
        PrunedEffect(model, LoraOptions(4, 8))
    assert absent in str(error.value) and there in str(error.value)
    assert "layer 0" in str(error.value) and type(model).__name__ in str(error.value)
    assert list(model.modules()) == modules


def test_every_layer_has_its_mlp() -> None:
    for architecture in GATED:
        mlps = find_mlps(tiny.make_model(architecture))
        assert [mlp.width for mlp in mlps] == [48, 48, 48]
        assert mlps[1].projection("up_proj") == "model.layers.1.mlp.up_proj"
