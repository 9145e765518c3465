"""A live mask against a copy of the model whose outputs are scaled by hand."""

from copy import deepcopy

import accelerate
import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM
from transformers.pytorch_utils import Conv1D

from tests import tiny
from tfrnet.core.errors import InputError
from tfrnet.masking.channels import find_channels
from tfrnet.masking.mask import ChannelMask, capacity, dormant

pytestmark = pytest.mark.filterwarnings("ignore::tfrnet.core.errors.TfrnetWarning")
IDS = torch.arange(1, 25).reshape(2, 12)
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def all_channels(model):
    return find_channels(model)


def random_mask(total, seed=0):
    generator = torch.Generator().manual_seed(seed)
    choices = torch.tensor([1.0, 0.5, 0.05, 0.0])
    return choices[torch.randint(4, (total,), generator=generator)]


def scaled_by_hand(model, mask):
    """Return a copy whose linear modules, all but the head, multiply their output by the mask."""
    copy = deepcopy(model)
    start = 0
    for name, module in copy.named_modules():
        if not isinstance(module, (torch.nn.Linear, Conv1D)) or name == "lm_head":
            continue
        width = module.weight.shape[1 if isinstance(module, Conv1D) else 0]
        part = mask[start : start + width].to(module.weight.dtype)
        start += width
        module.forward = lambda x, plain=module.forward, part=part: plain(x) * part
    assert start == len(mask)
    return copy


@torch.no_grad()
def logits(model, ids=IDS):
    return model(ids).logits


@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_ones_change_nothing_bit_for_bit(architecture, dtype):
    model = tiny.make_model(architecture, dtype)
    before = logits(model)
    with ChannelMask(model, all_channels(model)) as mask:
        assert torch.equal(logits(model), before)
        mask.set(torch.ones(mask.index.total))
        assert torch.equal(logits(model), before)


@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_masked_model_is_the_one_scaled_by_hand(architecture, dtype):
    model = tiny.make_model(architecture, dtype)
    index = all_channels(model)
    values = random_mask(index.total)
    expected = logits(scaled_by_hand(model, values))
    before = logits(model)
    with ChannelMask(model, index) as mask:
        mask.set(values)
        masked = logits(model)
    assert torch.equal(masked, expected)
    assert not torch.allclose(masked, before, rtol=0.1)


@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
def test_half_precision_stays_close_to_float32(dtype):
    outputs = []
    for model in (tiny.make_model("llama"), tiny.make_model("llama", dtype)):
        with ChannelMask(model, all_channels(model)) as mask:
            mask.set(random_mask(mask.index.total))
            outputs.append(logits(model))
    assert outputs[1].dtype == dtype
    error = (outputs[1].double() - outputs[0].double()).norm() / outputs[0].double().norm()
    # About 25 roundings lie between the tokens and the logits, each of at most eps / 2.
    assert error < 12 * torch.finfo(dtype).eps


def test_use_in_a_lower_precision_leaves_the_mask_exact():
    model = tiny.make_model("llama")
    index = all_channels(model)
    values = random_mask(index.total) * 0.9
    expected = logits(scaled_by_hand(model, values))
    with ChannelMask(model, index) as mask:
        mask.set(values)
        with torch.autocast("cpu", torch.bfloat16):
            logits(model)
        assert torch.equal(logits(model), expected)


def test_a_second_set_replaces_the_first():
    model = tiny.make_model("llama")
    index = all_channels(model)
    second = random_mask(index.total, seed=1)
    expected = logits(scaled_by_hand(model, second))
    with ChannelMask(model, index) as mask:
        mask.set(random_mask(index.total))
        mask.set(second)
        assert torch.equal(logits(model), expected)


def test_the_mask_does_not_follow_later_changes_of_the_tensor_it_was_set_from():
    model = tiny.make_model("llama")
    index = all_channels(model)
    values = random_mask(index.total)
    with ChannelMask(model, index) as mask:
        mask.set(values)
        before = logits(model)
        values.fill_(0)
        assert torch.equal(logits(model), before)


@pytest.mark.parametrize("shape", [(1,), (1, 672), (673,)])
def test_a_mask_of_another_shape_is_refused(shape):
    model = tiny.make_model("llama")
    with ChannelMask(model, all_channels(model)) as mask:
        assert mask.index.total == 672
        with pytest.raises(ValueError, match="672"):
            mask.set(torch.ones(shape))


def condition(model):
    """Return everything about a model, its values apart, that a mask could leave changed."""
    return {
        "hooks": {
            name: (
                list(module._forward_hooks.values()),
                list(module._forward_pre_hooks.values()),
                list(module._backward_hooks.values()),
                "forward" in vars(module),
                type(module),
            )
            for name, module in model.named_modules()
        },
        "requires_grad": {n: p.requires_grad for n, p in model.named_parameters()},
        "grad": {n: p.grad is None for n, p in model.named_parameters()},
        "training": {name: module.training for name, module in model.named_modules()},
    }


@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
def test_attach_and_detach_leave_the_model_as_it_was(architecture):
    model = tiny.make_model(architecture)
    next(model.parameters()).requires_grad_(False)
    projection = model.get_submodule(all_channels(model)[1].name)
    projection.train()
    projection.register_forward_hook(lambda module, inputs, output: None)
    before = condition(model)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    outputs = logits(model)
    mask = ChannelMask(model, all_channels(model))
    mask.set(random_mask(mask.index.total))
    assert not torch.equal(logits(model), outputs)
    mask.detach()
    assert condition(model) == before
    assert list(model.state_dict()) == list(weights)
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    assert torch.equal(logits(model), outputs)


def test_leaving_the_block_by_an_error_detaches():
    model = tiny.make_model("llama")
    before = logits(model)
    with pytest.raises(ZeroDivisionError), ChannelMask(model, all_channels(model)) as mask:
        mask.set(random_mask(mask.index.total))
        _ = 1 / 0
    assert torch.equal(logits(model), before)


def test_a_second_mask_on_one_model_is_refused_until_the_first_is_detached():
    model = tiny.make_model("llama")
    index = all_channels(model)
    first = ChannelMask(model, index)
    with pytest.raises(InputError, match="attached"):
        ChannelMask(model, index)
    ChannelMask(tiny.make_model("llama"), index).detach()
    first.detach()
    ChannelMask(model, index).detach()


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "gemma3", "qwen2_moe"])
def test_generation_with_and_without_cache_is_that_of_the_model_scaled_by_hand(architecture):
    model = tiny.make_model(architecture)
    index = all_channels(model)
    values = random_mask(index.total)
    options = {
        "attention_mask": torch.ones_like(IDS),
        "max_new_tokens": 10,
        "do_sample": False,
        "pad_token_id": 0,
    }
    unmasked = model.generate(IDS, **options)
    expected = scaled_by_hand(model, values).generate(IDS, use_cache=False, **options)
    with ChannelMask(model, index) as mask:
        mask.set(values)
        for use_cache in (True, False):
            assert torch.equal(model.generate(IDS, use_cache=use_cache, **options), expected)
    assert not torch.equal(unmasked, expected)


@pytest.mark.parametrize("reentrant", [True, False])
def test_training_under_a_mask_with_gradient_checkpointing(reentrant):
    model = tiny.make_model("llama")
    index = all_channels(model)
    values = random_mask(index.total)
    reference = scaled_by_hand(model, values).train()
    reference(IDS, labels=IDS).loss.backward()
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    model.enable_input_require_grads()
    model.train()
    with ChannelMask(model, index) as mask:
        mask.set(values)
        model(IDS, labels=IDS).loss.backward()
    for (name, found), expected in zip(
        model.named_parameters(), reference.parameters(), strict=True
    ):
        torch.testing.assert_close(found.grad, expected.grad, msg=name)


def from_device_map(model, folder):
    model.save_pretrained(folder)
    return AutoModelForCausalLM.from_pretrained(folder, device_map={"": "cpu"})


def dispatched(model, folder):
    return accelerate.dispatch_model(model, {"": "cpu"}, force_hooks=True)


def offloaded(model, folder):
    return accelerate.cpu_offload(model, execution_device="cpu")


def offloaded_to_disk(model, folder):
    return accelerate.disk_offload(model, folder, execution_device="cpu")


@pytest.mark.parametrize("place", [from_device_map, dispatched, offloaded, offloaded_to_disk])
def test_a_mask_works_on_a_model_that_accelerate_has_placed(place, tmp_path):
    plain = tiny.make_model("llama")
    index = all_channels(plain)
    values = random_mask(index.total)
    expected = logits(scaled_by_hand(plain, values))
    before = logits(plain)
    placed = place(plain, tmp_path / "model").eval()
    with ChannelMask(placed, all_channels(placed)) as mask:
        mask.set(values)
        assert torch.equal(logits(placed), expected)
    assert torch.equal(logits(placed), before)


def falcon(**changes):
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    return transformers.FalconConfig(vocab_size=tiny.VOCABULARY, **sizes, **changes)


def deepseek(kind):
    heads = {"qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8, "head_dim": 8}
    heads |= {"num_attention_heads": 4, "num_key_value_heads": 4}
    ranks = {"q_lora_rank": 16, "kv_lora_rank": 16}
    # Without experts, which get tokens one by one.
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "first_k_dense_replace": 2}
    return kind(vocab_size=tiny.VOCABULARY, intermediate_size=48, **sizes, **heads, **ranks)


def llama4():
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
    # Only the expert that all tokens share is masked.
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size_mlp": 48}
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "pad_token_id": 0}
    return transformers.Llama4TextConfig(vocab_size=tiny.VOCABULARY, **sizes, **heads, **experts)


UNUSUAL = {
    "a falcon": lambda: falcon(multi_query=True, parallel_attn=True),
    "a falcon of now": lambda: falcon(new_decoder_architecture=True),
    "a falcon with a bias": lambda: falcon(parallel_attn=True, bias=True),
    "deepseek v2": lambda: deepseek(transformers.DeepseekV2Config),
    "deepseek v3": lambda: deepseek(transformers.DeepseekV3Config),
    "llama 4": llama4,
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", UNUSUAL)
def test_gradients_of_each_example_are_those_of_masks_multiplied_by_hand(kind, weighted):
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(UNUSUAL[kind]()).eval().double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.05, 0.15)
    index = all_channels(model)
    values = random_mask(index.total).double()
    batch, length = IDS.shape
    weights = torch.rand(IDS.shape, dtype=torch.float64) if weighted else None
    by_hand = [part.repeat(batch, 1).requires_grad_() for part in index.split(values)]

    def scaled(rows):
        def hook(module, inputs, output):
            fixed = output.reshape(batch, length, -1)
            share = torch.ones(IDS.shape).double() if weights is None else weights
            change = share.unsqueeze(-1) * (rows - rows.detach()).unsqueeze(1)
            return (fixed * (rows.detach().unsqueeze(1) + change)).view(output.shape)

        return hook

    handles = [
        model.get_submodule(part.name).register_forward_hook(scaled(rows))
        for part, rows in zip(index, by_hand, strict=True)
    ]
    model(IDS, labels=IDS).loss.backward()
    for handle in handles:
        handle.remove()
    with ChannelMask(model, index) as mask:
        mask.set(values)
        with mask.per_example(batch, length, weights) as leaves:
            model(IDS, labels=IDS).loss.backward()
    for part, leaf, wanted in zip(index, leaves, by_hand, strict=True):
        torch.testing.assert_close(leaf.grad, wanted.grad, msg=part.name)


def test_vector_v21_of_the_evaluation_page():
    mask = torch.cat([torch.tensor([1, 0.05, 0.5, 1]), torch.tensor([0.1, 1, 1, 1, 0.02, 0.6])])
    assert dormant(mask, 0.1).nonzero().flatten().tolist() == [1, 4, 8]
    assert capacity(mask, 0.1) == pytest.approx(0.7, abs=1e-12)
    halved = [torch.tensor([0.5**times]) for times in range(6)]
    assert [bool(dormant(m, 0.1)) for m in halved] == [False, False, False, False, True, True]
