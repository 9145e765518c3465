"""The digest sees whatever changes what a model computes, or says that it cannot tell."""

from __future__ import annotations

import random

import accelerate
import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM

from tests import tiny
from tfrnet.masking.channels import find_channels
from tfrnet.masking.digest import model_digest
from tfrnet.masking.mask import ChannelMask


def tensors(model):
    return dict([*model.named_parameters(), *model.named_buffers()])


@torch.no_grad()
def flip_bit(tensor, element, bit):
    """Change one bit; a second time gives the old value back."""
    raw = tensor.detach().reshape(-1)[element].clone().reshape(1).view(torch.uint8)
    raw[bit // 8] ^= 1 << bit % 8
    tensor.reshape(-1)[element] = raw.view(tensor.dtype)[0]


def attached(model, **settings):
    return ChannelMask(model, find_channels(model, **settings))


def drawn(total, seed=0):
    return torch.rand(total, generator=torch.Generator().manual_seed(seed))


# What changes it


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_a_bit_of_any_weight_or_buffer_counts(architecture):
    model = tiny.make_model(architecture)
    before = model_digest(model)
    seen = {before}
    found = tensors(model)
    assert any(name.endswith("inv_freq") for name in found) == (architecture != "gpt2")
    for name, tensor in found.items():
        flip_bit(tensor, tensor.numel() - 1, 0)
        seen.add(model_digest(model))
        flip_bit(tensor, tensor.numel() - 1, 0)
        assert model_digest(model) == before, name
    assert len(seen) == len(found) + 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_bit_counts_wherever_it_is(dtype):
    model = tiny.make_model(dtype=dtype)
    generator = random.Random(0)
    seen = {model_digest(model)}
    for _ in range(30):
        tensor = generator.choice(list(model.parameters()))
        bit = generator.randrange(8 * tensor.element_size())
        flip_bit(tensor, generator.randrange(tensor.numel()), bit)
        digest = model_digest(model)
        assert digest not in seen
        seen.add(digest)


def test_a_weights_bits_count_and_not_only_its_value():
    model = tiny.make_model()
    weight = model.lm_head.weight.data
    weight[0, 0] = 0.0
    before = model_digest(model)
    weight[0, 0] = -0.0
    assert model_digest(model) != before


def test_which_tensor_holds_a_value_counts():
    model = tiny.make_model()
    before = model_digest(model)
    first, second = (model.model.layers[i].self_attn.q_proj for i in (0, 1))
    first.weight, second.weight = second.weight, first.weight
    assert model_digest(model) != before


def test_shape_and_dtype_count_even_with_the_same_bytes():
    digests = set()
    for buffer in (
        torch.zeros(4, 3),
        torch.zeros(3, 4),
        torch.zeros(12),
        torch.zeros(12, dtype=torch.int32),
        torch.zeros(24, dtype=torch.bfloat16),
        torch.zeros(24, dtype=torch.float16),
    ):
        model = tiny.make_model()
        model.register_buffer("extra", buffer)
        digests.add(model_digest(model))
    assert len(digests) == 6


def test_another_dtype_is_another_model():
    types = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
    assert len({model_digest(tiny.make_model(dtype=dtype)) for dtype in types}) == 4


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("rms_norm_eps", 1e-5),
        ("hidden_act", "gelu"),
        ("max_position_embeddings", 256),
        ("attention_dropout", 0.1),
        ("_attn_implementation", "eager"),
    ],
)
def test_a_setting_counts(setting, value):
    model = tiny.make_model()
    before = model_digest(model)
    setattr(model.config, setting, value)
    assert model_digest(model) != before


def test_the_class_counts():
    llama, mistral = tiny.make_model("llama"), tiny.make_model("mistral")
    mistral.config = llama.config
    assert [name for name, _ in llama.named_parameters()] == [
        name for name, _ in mistral.named_parameters()
    ]
    assert model_digest(llama) != model_digest(mistral)


def test_train_mode_counts():
    model = tiny.make_model()
    before = model_digest(model)
    assert model_digest(model.train()) != before
    assert model_digest(model.eval()) == before


def test_train_mode_of_a_part_counts():
    """Dropout looks at its own module's mode."""
    model = tiny.make_model("gpt2")
    seen = {model_digest(model)}
    for part in (model.transformer.h[1], model.transformer.h[2].mlp.dropout, model.transformer.h):
        part.train()
        digest = model_digest(model)
        assert digest not in seen
        seen.add(digest)


# The live mask


def test_any_change_of_the_mask_counts():
    model = tiny.make_model()
    base = model_digest(model)
    with attached(model) as mask:
        assert model_digest(model) == base
        mask.set(torch.ones(mask.index.total))
        assert model_digest(model) == base
        values = drawn(mask.index.total)
        mask.set(values)
        masked = model_digest(model)
        seen = {base, masked}
        for channel in range(0, mask.index.total, 41):
            other = values.clone()
            other[channel] = torch.nextafter(other[channel], torch.tensor(2.0))
            mask.set(other)
            seen.add(model_digest(model))
        assert len(seen) == 2 + len(range(0, mask.index.total, 41))
        mask.set(values)
        assert model_digest(model) == masked
    assert model_digest(model) == base


def test_the_same_values_on_other_projections_are_another_mask():
    model = tiny.make_model()
    digests = []
    for name in ("q_proj", "o_proj", "down_proj"):
        with attached(model, target_modules=[name], layers=[0]) as mask:
            mask.set(drawn(mask.index.total))
            digests.append(model_digest(model))
    assert len(set(digests)) == 3


def test_a_folded_mask_is_not_the_live_one():
    """They compute the same but for rounding, and rounding counts."""
    from tfrnet.evaluation.attacking.weights import folded

    model = tiny.make_model()
    base = model_digest(model)
    with attached(model) as mask:
        mask.set(drawn(mask.index.total))
        live = model_digest(model)
        with folded(mask):
            assert model_digest(model) not in (base, live)
        assert model_digest(model) == live


# What does not change it


def test_a_model_that_is_loaded_twice_has_one_digest(tiny_folder):
    first, second = (AutoModelForCausalLM.from_pretrained(tiny_folder).eval() for _ in range(2))
    assert first is not second
    assert model_digest(first) == model_digest(second)


def test_looking_and_running_change_nothing():
    model = tiny.make_model()
    digest = model_digest(model)
    with torch.no_grad():
        model(torch.tensor([[1, 2, 3]]))
    model.requires_grad_(False)
    assert model_digest(model) == model_digest(model) == digest


def dispatched(model, folder):
    return accelerate.dispatch_model(model, {"": "cpu"}, force_hooks=True)


def offloaded(model, folder):
    return accelerate.cpu_offload(model, execution_device="cpu")


def offloaded_to_disk(model, folder):
    return accelerate.disk_offload(model, folder, execution_device="cpu")


@pytest.mark.parametrize("place", [dispatched, offloaded, offloaded_to_disk])
def test_where_accelerate_keeps_the_weights_does_not_matter(place, tmp_path):
    plain = tiny.make_model()
    digest = model_digest(plain)
    with attached(plain) as mask:
        mask.set(drawn(mask.index.total))
        masked = model_digest(plain)
    flip_bit(plain.lm_head.weight, 5, 0)
    changed = model_digest(plain)
    flip_bit(plain.lm_head.weight, 5, 0)
    placed = place(plain, tmp_path / "weights").eval()
    assert model_digest(placed) == digest
    with attached(placed) as mask:
        mask.set(drawn(mask.index.total))
        assert model_digest(placed) == masked
    other = tiny.make_model()
    flip_bit(other.lm_head.weight, 5, 0)
    assert model_digest(place(other, tmp_path / "other").eval()) == changed


# What it cannot tell


def nothing(*arguments, **named):
    return None


@pytest.mark.parametrize("register", ["register_forward_hook", "register_forward_pre_hook"])
@pytest.mark.parametrize("where", ["", "lm_head", "model.layers.1.mlp.act_fn"])
def test_a_hook_makes_it_none(register, where):
    model = tiny.make_model()
    digest = model_digest(model)
    handle = getattr(model.get_submodule(where), register)(nothing)
    assert model_digest(model) is None
    handle.remove()
    assert model_digest(model) == digest


def test_a_hook_on_a_masked_or_dispatched_module_makes_it_none():
    model = dispatched(tiny.make_model(), None)
    with attached(model) as mask:
        mask.set(drawn(mask.index.total))
        assert model_digest(model) is not None
        model.get_submodule(mask.index[0].name).register_forward_hook(nothing)
        assert model_digest(model) is None


def test_masks_that_are_being_differentiated_make_it_none():
    model = tiny.make_model()
    with attached(model) as mask, mask.per_example(1, 4):
        assert model_digest(model) is None


@pytest.mark.parametrize("where", ["", "model.layers.0.self_attn.q_proj", "model.norm"])
def test_a_replaced_forward_makes_it_none(where):
    model = tiny.make_model()
    module = model.get_submodule(where)
    module.forward = module.forward
    assert model_digest(model) is None


def doubled(module):
    forward = module.forward
    module.forward = lambda *arguments: 2 * forward(*arguments)


def test_a_replaced_forward_under_a_mask_makes_it_none():
    model = tiny.make_model()
    with attached(model) as mask:
        name = mask.index[0].name
    doubled(model.get_submodule(name))
    with attached(model) as mask:
        mask.set(drawn(mask.index.total))
        assert model_digest(model) is None


def test_a_replaced_forward_on_a_dispatched_model_makes_it_none():
    model = dispatched(tiny.make_model(), None)
    doubled(model.model.layers[0].self_attn.q_proj)
    assert model_digest(model) is None


def test_a_forward_that_was_replaced_before_the_model_was_dispatched_makes_it_none():
    model = tiny.make_model()
    doubled(model.model.layers[0].self_attn.q_proj)
    assert model_digest(dispatched(model, None)) is None


def test_an_adapter_makes_it_none():
    from peft import LoraConfig, LoraModel

    model = tiny.make_model()
    digest = model_digest(model)
    tuner = LoraModel(model, LoraConfig(target_modules=["q_proj"]), "default")
    assert model_digest(model) is None
    tuner.unload()
    assert model_digest(model) == digest


class Louder(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, hidden):
        return 2 * self.inner(hidden)


def test_a_module_of_other_code_makes_it_none():
    model = tiny.make_model()
    model.model.norm = Louder(model.model.norm)
    assert model_digest(model) is None
