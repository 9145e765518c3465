import pytest
import torch
from transformers.pytorch_utils import Conv1D

from tests import tiny
from tfrnet.evaluation.attacking.weights import folded
from tfrnet.evaluation.attacks.quantise import (
    LEVELS,
    SCHEMES,
    Scheme,
    quantised,
    round_trip,
    to_integers,
    to_levels,
)
from tfrnet.masking.channels import find_channels
from tfrnet.masking.mask import ChannelMask

# The vector that the evaluation's formulas were checked with.
W = [[0.31, -0.12, 0.08, 0.305, -0.27, 0.02, 0.0, -0.31]]
IDS = torch.arange(1, 25).reshape(2, 12)


def weight(rows=6, width=128, dtype=torch.float32):
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(1)).to(dtype)


def by_hand(values, half):
    """Round one group, with Python's numbers."""
    step = max(abs(value) for value in values) / half
    if step == 0:
        return [0.0] * len(values)
    return [max(-half, min(half - 1, round(value / step))) * step for value in values]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_round_to_nearest_of_the_known_vector(dtype):
    step, integers = to_integers(torch.tensor(W, dtype=dtype), 4)
    assert step.item() == pytest.approx(0.03875, rel=1e-7)
    assert integers.tolist() == [[7, -3, 2, 7, -7, 1, 0, -8]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nf4_of_the_known_vector(dtype):
    scale, indices = to_levels(torch.tensor(W, dtype=dtype), LEVELS["nf4"])
    assert scale.item() == pytest.approx(0.31, rel=1e-7)
    assert indices.tolist() == [[15, 3, 10, 15, 0, 8, 7, 0]]


@pytest.mark.parametrize("bits", [8, 4, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_factor_of_the_known_vector_changes_no_integer(bits, dtype):
    w = torch.tensor(W, dtype=dtype)
    (step, integers), (small_step, same) = to_integers(w, bits), to_integers(0.1 * w, bits)
    assert torch.equal(integers, same)
    assert small_step.item() == pytest.approx(0.1 * step.item())


@pytest.mark.parametrize("bits", [8, 4, 3])
@pytest.mark.parametrize("scaling", ["row", "block", "tensor"])
@pytest.mark.parametrize("width", [40, 64, 100, 128])
def test_groups_are_rounded_as_by_hand(bits, scaling, width):
    w = weight(3, width, torch.float64)
    w[1] *= 0.01
    rows = w.tolist()
    if scaling == "tensor":
        groups = [w.flatten().tolist()]
    else:
        size = width if scaling == "row" else 64
        groups = [row[start : start + size] for row in rows for start in range(0, width, size)]
    expected = [value for group in groups for value in by_hand(group, 2 ** (bits - 1))]
    found = round_trip(w, Scheme(f"int{bits}", scaling))
    assert found.shape == w.shape
    assert found.flatten().tolist() == pytest.approx(expected, rel=0, abs=1e-12)


@pytest.mark.parametrize("grid", ["nf4", "fp4"])
@pytest.mark.parametrize("width", [40, 128])
def test_levels_are_the_nearest_of_blocks_that_may_span_rows(grid, width):
    w = weight(3, width, torch.float64)
    w[1] *= 0.01
    flat = w.flatten().tolist()
    expected = []
    for start in range(0, len(flat), 64):
        block = flat[start : start + 64]
        scale = max(map(abs, block))
        expected += [
            min((scale * x for x in LEVELS[grid]), key=lambda x: abs(x - v)) for v in block
        ]
    found = round_trip(w, Scheme(grid)).flatten().tolist()
    assert found == pytest.approx(expected, rel=0, abs=1e-12)


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
def test_zeros_stay_zeros(scheme):
    w = weight(4, 100)
    w[1:3] = 0
    found = round_trip(w, scheme)
    assert found[1:3].count_nonzero() == 0
    assert found[0].count_nonzero() > 0
    assert round_trip(torch.zeros(2, 64), scheme).count_nonzero() == 0


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_the_dtype_stays_and_the_arithmetic_is_float32_or_better(scheme, dtype):
    w = weight(3, 64, dtype)
    found = round_trip(w, scheme)
    assert found.dtype == dtype
    wide = w if dtype == torch.float64 else w.float()
    assert torch.equal(found, round_trip(wide, scheme).to(dtype))


def test_names_are_readable_and_distinct():
    names = [scheme.name for scheme in SCHEMES]
    assert names[:3] == ["int8-row", "int8-block", "int8-tensor"]
    assert names[-2:] == ["nf4", "fp4"]
    assert len(set(names)) == len(names) == 11
    assert Scheme("nf4", "row").name == "nf4-row"
    assert Scheme("int4").name == "int4-flat"


@pytest.mark.parametrize("grid", ["int8", "int4", "int3", "nf4", "fp4"])
@pytest.mark.parametrize("scaling", ["row", "block", "flat"])
def test_scales_within_rows_take_up_a_mask_entirely(grid, scaling):
    w = weight(64)
    mask = torch.rand(64, 1, generator=torch.Generator().manual_seed(2))
    expected = round_trip(w, Scheme(grid, scaling)) * mask
    found = round_trip(w * mask, Scheme(grid, scaling))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("scheme", [Scheme("int4", "tensor"), Scheme("nf4", "flat")])
def test_a_scale_shared_across_rows_rounds_masked_rows_to_zero(scheme):
    w = weight(8, 32)
    w[::2] *= 0.01
    assert round_trip(w, scheme)[::2].count_nonzero() == 0
    assert round_trip(w, scheme)[1::2].count_nonzero() > 0
    assert round_trip(w, Scheme(scheme.grid, "row"))[::2].count_nonzero() > 0


@pytest.mark.parametrize("grid", ["nf4", "fp4"])
@pytest.mark.parametrize("shape", [(6, 128), (5, 100), (3, 24)])
def test_levels_agree_with_bitsandbytes(grid, shape):
    functional = pytest.importorskip("bitsandbytes").functional
    w = weight(*shape)
    w[1] *= 0.03
    w[2] = 0
    packed, state = functional.quantize_4bit(w, blocksize=64, quant_type=grid)
    expected = functional.dequantize_4bit(packed, state)
    torch.testing.assert_close(round_trip(w, Scheme(grid)), expected, rtol=1e-6, atol=0)


@torch.no_grad()
def logits(model):
    return model(IDS).logits.double()


def snapshot(model):
    return {name: (p, p.data_ptr(), p.detach().clone()) for name, p in model.named_parameters()}


def assert_untouched(model, before):
    after = dict(model.named_parameters())
    assert after.keys() == before.keys()
    for name, (parameter, address, values) in before.items():
        assert after[name] is parameter and parameter.data_ptr() == address
        assert torch.equal(parameter, values), name


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gpt2"])
@pytest.mark.parametrize("scheme", [Scheme("int4", "row"), Scheme("nf4")], ids=lambda s: s.name)
def test_projections_are_rounded_for_a_while_and_nothing_else(architecture, scheme):
    model = tiny.make_model(architecture)
    before = snapshot(model)
    rounded = set()
    with quantised(model, scheme):
        for name, module in model.named_modules():
            if isinstance(module, (torch.nn.Linear, Conv1D)) and name != "lm_head":
                original = before[f"{name}.weight"][2]
                turn = isinstance(module, Conv1D)
                expected = round_trip(original.T if turn else original, scheme)
                assert torch.equal(module.weight.T if turn else module.weight, expected)
                assert not torch.equal(module.weight, original)
                rounded.add(f"{name}.weight")
        for name, parameter in model.named_parameters():
            assert name in rounded or torch.equal(parameter, before[name][2]), name
        assert torch.isfinite(logits(model)).all()
    assert len(rounded) == (12 if architecture == "gpt2" else 21)
    assert_untouched(model, before)


def test_the_weights_come_back_after_an_exception():
    model = tiny.make_model("gpt2")
    before = snapshot(model)
    with pytest.raises(KeyError), quantised(model, Scheme("int3", "row")):
        raise KeyError
    assert_untouched(model, before)


@pytest.mark.filterwarnings("error::tfrnet.core.errors.TfrnetWarning")
def test_experts_in_one_tensor_are_left_alone():
    model = tiny.make_model("mixtral")
    before = snapshot(model)
    with quantised(model, Scheme("int4", "row")):
        assert all(
            torch.equal(parameter, before[name][2])
            for name, parameter in model.named_parameters()
            if "experts" in name
        )


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gpt2"])
@pytest.mark.parametrize("bits", [8, 4, 3])
def test_a_folded_mask_survives_rounding_row_by_row(architecture, bits):
    model = tiny.make_model(architecture)
    index = find_channels(model, target_modules="all-linear")
    scheme = Scheme(f"int{bits}", "row")
    values = torch.rand(index.total, generator=torch.Generator().manual_seed(3))
    with ChannelMask(model, index) as mask:
        mask.set(values)
        with quantised(model, scheme):
            expected = logits(model)
        with folded(mask), quantised(model, scheme):
            assert (logits(model) - expected).norm() < 1e-5 * expected.norm()
