"""Folding a mask into weights."""

from copy import deepcopy

import pytest
import torch
from transformers.pytorch_utils import Conv1D

from tests import tiny
from tests.exports import random_mask
from tfrnet.core.errors import InputError
from tfrnet.masking.channels import find_channels
from tfrnet.masking.fold import folded_tensors
from tfrnet.masking.mask import ChannelMask

pytestmark = pytest.mark.filterwarnings("ignore::tfrnet.core.errors.TfrnetWarning")
IDS = torch.arange(1, 25).reshape(2, 12)
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def channels(model, target="all-linear"):
    return find_channels(model, target_modules=target)


@torch.no_grad()
def logits(model):
    return model(IDS).logits.double()


def weights_by_hand(model, mask):
    """Return every linear module's mask-scaled parameters, the head's apart, in float64."""
    expected = {}
    start = 0
    for name, module in model.named_modules():
        if not isinstance(module, (torch.nn.Linear, Conv1D)) or name == "lm_head":
            continue
        weight = module.weight.detach().double()
        weight = weight.T if isinstance(module, Conv1D) else weight
        part = mask[start : start + len(weight)].double()
        start += len(weight)
        scaled = torch.diag(part) @ weight
        expected[f"{name}.weight"] = scaled.T if isinstance(module, Conv1D) else scaled
        if getattr(module, "bias", None) is not None:
            expected[f"{name}.bias"] = module.bias.detach().double() * part
    return expected


@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_folded_tensors_are_those_computed_by_hand(architecture, dtype):
    model = tiny.make_model(architecture, dtype)
    index = channels(model)
    mask = random_mask(index.total)
    folded = folded_tensors(model, index, mask)
    expected = weights_by_hand(model, mask)
    assert folded.keys() <= expected.keys()
    found = dict(model.named_parameters()) | folded
    for name, values in expected.items():
        assert found[name].dtype == dtype
        bound = torch.finfo(dtype).eps * values.abs() + torch.finfo(dtype).tiny
        assert ((found[name].double() - values).abs() <= bound).all(), name


@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
def test_a_model_with_folded_weights_gives_the_masked_models_logits(architecture):
    model = tiny.make_model(architecture)
    index = channels(model)
    values = random_mask(index.total)
    copy = deepcopy(model)
    copy.load_state_dict(folded_tensors(model, index, values), strict=False)
    with ChannelMask(model, index) as mask:
        mask.set(values)
        masked = logits(model)
    assert (logits(copy) - masked).norm() < 1e-5 * masked.norm()
    assert (logits(model) - masked).norm() > 0.1 * masked.norm()


@pytest.mark.parametrize(("architecture", "target"), [("qwen2", "k_proj"), ("gpt2", "c_attn")])
def test_biases_are_folded_too(architecture, target):
    model = tiny.make_model(architecture)
    index = channels(model, [target])
    folded = folded_tensors(model, index, torch.zeros(index.total))
    assert sum(name.endswith(".bias") for name in folded) == 3
    assert all(tensor.count_nonzero() == 0 for tensor in folded.values())


def test_the_originals_are_neither_changed_nor_shared():
    model = tiny.make_model("gpt2")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    index = channels(model)
    for tensor in folded_tensors(model, index, random_mask(index.total)).values():
        tensor.fill_(7)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("masked", ["q_proj", "o_proj"])
def test_a_weight_shared_by_two_projections_is_refused(masked):
    model = tiny.make_model("llama")
    attention = model.model.layers[1].self_attn
    attention.o_proj.weight = attention.q_proj.weight
    index = channels(model, [f"layers.1.self_attn.{masked}"])
    with pytest.raises(InputError, match=r"q_proj\.weight.*o_proj|o_proj\.weight.*q_proj"):
        folded_tensors(model, index, torch.full((index.total,), 0.5))


def test_a_weight_shared_with_the_embedding_is_refused():
    model = tiny.make_model("llama")
    model.model.layers[0].self_attn.q_proj.weight = model.model.embed_tokens.weight
    index = channels(model, ["q_proj"])
    with pytest.raises(InputError, match="embed_tokens"):
        folded_tensors(model, index, torch.full((index.total,), 0.5))


def test_a_shared_weight_whose_mask_is_all_ones_needs_no_fold():
    model = tiny.make_model("llama")
    attention = model.model.layers[1].self_attn
    attention.o_proj.weight = attention.q_proj.weight
    index = channels(model, ["q_proj", "o_proj"])
    assert folded_tensors(model, index, torch.ones(index.total)) == {}


def test_a_mask_is_not_folded_into_quantised_weights():
    model = tiny.make_model("llama")
    projection = model.model.layers[0].self_attn.q_proj
    packed = torch.zeros(512, 1, dtype=torch.uint8)
    projection.weight = torch.nn.Parameter(packed, requires_grad=False)
    index = channels(model, ["q_proj"])
    with pytest.raises(InputError, match=r"layers\.0\.self_attn\.q_proj\.weight is quantised"):
        folded_tensors(model, index, torch.full((index.total,), 0.5))
