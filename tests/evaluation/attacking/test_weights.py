import pytest
import torch
from transformers.pytorch_utils import Conv1D

from tests import tiny
from tfrnet.evaluation.attacking.weights import folded, replaced
from tfrnet.evaluation.attacks.rescale import harden, rescaled
from tfrnet.masking.channels import find_channels
from tfrnet.masking.fold import folded_tensors
from tfrnet.masking.mask import ChannelMask

# LLaMA has no biases, Qwen2 some, GPT-2 everywhere and transposed weights.
ARCHITECTURES = ["llama", "qwen2", "gpt2"]
IDS = torch.arange(1, 25).reshape(2, 12)


def channels(model):
    return find_channels(model, target_modules="all-linear")


def drawn(choices, total):
    picks = torch.randint(len(choices), (total,), generator=torch.Generator().manual_seed(0))
    return torch.tensor(choices)[picks]


@torch.no_grad()
def logits(model):
    return model(IDS).logits.double()


def distance(found, expected):
    return ((found - expected).norm() / expected.norm()).item()


def snapshot(model):
    return {name: (p, p.data_ptr(), p.detach().clone()) for name, p in model.named_parameters()}


def assert_untouched(model, before):
    after = dict(model.named_parameters())
    assert after.keys() == before.keys()
    for name, (parameter, address, values) in before.items():
        assert after[name] is parameter and parameter.data_ptr() == address
        assert torch.equal(parameter, values), name


def rows_of(module):
    return module.weight.T if isinstance(module, Conv1D) else module.weight


def with_equal_rows(architecture, dtype=torch.float32):
    """Return a model whose output rows all have the norm 2 within each projection."""
    model = tiny.make_model(architecture, torch.float64)
    with torch.no_grad():
        for projection in channels(model):
            rows = rows_of(model.get_submodule(projection.name))
            rows.mul_(2 / rows.norm(dim=1, keepdim=True))
    return model.to(dtype)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(
    ("dtype", "choices", "tolerance"),
    [
        (torch.float32, [1.0, 0.7, 0.05, 0.0], 1e-5),
        # Powers of two: the fold, which is made in float32, rounds nothing.
        (torch.float64, [1.0, 0.5, 0.125, 0.0], 1e-12),
    ],
)
def test_folded_weights_give_the_masked_models_logits(architecture, dtype, choices, tolerance):
    model = tiny.make_model(architecture, dtype)
    untouched = logits(model)
    with ChannelMask(model, channels(model)) as mask:
        mask.set(drawn(choices, mask.index.total))
        masked = logits(model)
        with folded(mask):
            assert distance(logits(model), masked) < tolerance
        assert distance(untouched, masked) > 0.1


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_fold_is_what_an_export_ships_without_a_live_mask(architecture):
    model = tiny.make_model(architecture)
    before = snapshot(model)
    with ChannelMask(model, channels(model)) as mask:
        values = drawn([1.0, 0.7, 0.0], mask.index.total)
        mask.set(values)
        masked = logits(model)
        shipped = folded_tensors(model, mask.index, values)
        with folded(mask):
            assert mask.values.eq(1).all()
            assert all("forward" not in vars(module) for module in model.modules())
            for name, parameter in model.named_parameters():
                assert torch.equal(parameter, shipped.get(name, before[name][2])), name
        assert torch.equal(mask.values, values)
        assert torch.equal(logits(model), masked)
        assert_untouched(model, before)


def test_everything_comes_back_after_an_exception():
    model = tiny.make_model("gpt2")
    before = snapshot(model)
    with ChannelMask(model, channels(model)) as mask:
        mask.set(drawn([1.0, 0.5], mask.index.total))
        masked = logits(model)
        with pytest.raises(KeyError), folded(mask), rescaled(model, mask.index):
            raise KeyError
        assert torch.equal(logits(model), masked)
        assert_untouched(model, before)


def test_a_replacement_that_fails_half_way_leaves_the_model_alone():
    model = tiny.make_model("qwen2")
    before = snapshot(model)
    names = list(before)
    with (
        pytest.raises(TypeError),
        replaced(model, {names[0]: torch.zeros(3), names[1]: "no tensor"}),
    ):
        pass
    assert_untouched(model, before)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.1), (torch.float64, 1e-6)]
)
def test_rescaling_undoes_a_soft_mask_where_rows_were_equally_long(architecture, dtype, tolerance):
    model = with_equal_rows(architecture, dtype)
    untouched = logits(model)
    with ChannelMask(model, channels(model)) as mask:
        mask.set(drawn([1.0] * 8 + [0.6, 0.01], mask.index.total))
        with folded(mask):
            assert distance(logits(model), untouched) > 0.2
            with rescaled(model, mask.index):
                assert distance(logits(model), untouched) < tolerance


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_rows_and_biases_are_scaled_to_the_median_norm(architecture):
    model = tiny.make_model(architecture)
    before = snapshot(model)
    index = channels(model)
    with rescaled(model, index):
        for projection in index:
            module = model.get_submodule(projection.name)
            original = before[f"{projection.name}.weight"][2]
            norms = (original.T if isinstance(module, Conv1D) else original).norm(dim=1)
            ordered = norms.sort().values
            median = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
            torch.testing.assert_close(rows_of(module).norm(dim=1), median.expand(len(norms)))
            if getattr(module, "bias", None) is not None:
                bias = before[f"{projection.name}.bias"][2]
                torch.testing.assert_close(module.bias, bias * median / norms)
    assert_untouched(model, before)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_hardened_rows_stay_zero_after_rescaling(architecture):
    model = with_equal_rows(architecture)
    untouched = logits(model)
    with ChannelMask(model, channels(model)) as mask:
        soft = drawn([1.0] * 6 + [0.4, 0.05], mask.index.total)
        mask.set(harden(soft, 0.05))
        with folded(mask), rescaled(model, mask.index):
            for projection, values in zip(mask.index, mask.index.split(soft), strict=True):
                module = model.get_submodule(projection.name)
                norms = rows_of(module).norm(dim=1)
                expected = torch.where(values <= 0.05, 0.0, 2.0)
                torch.testing.assert_close(norms, expected, rtol=1e-5, atol=0)
                if getattr(module, "bias", None) is not None:
                    assert module.bias[values <= 0.05].count_nonzero() == 0
            assert distance(logits(model), untouched) > 0.1


def test_zero_rows_neither_change_nor_count_for_the_median():
    model = with_equal_rows("qwen2")
    module = model.model.layers[0].self_attn.q_proj
    empty = model.model.layers[1].self_attn.q_proj
    with torch.no_grad():
        module.weight[:20] = 0
        module.weight[20] *= 0.1
        empty.weight.zero_()
    bias = module.bias.detach().clone()
    with rescaled(model, channels(model)):
        assert module.weight[:20].count_nonzero() == 0
        assert torch.equal(module.bias[:20], bias[:20])
        torch.testing.assert_close(module.weight[20:].norm(dim=1), torch.full((12,), 2.0))
        torch.testing.assert_close(module.bias[20], bias[20] * 10)
        assert empty.weight.count_nonzero() == 0
        assert torch.isfinite(logits(model)).all()


def test_harden_sets_what_is_at_or_below_the_threshold_to_zero():
    values = torch.tensor([1.0, 0.5, 0.11, 0.1, 0.05, 0.0])
    expected = torch.tensor([1.0, 0.5, 0.11, 0.0, 0.0, 0.0])
    assert torch.equal(harden(values, 0.1), expected)
    assert values[3] == torch.tensor(0.1)
