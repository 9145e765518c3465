"""Passes are chosen so that what they keep fits; too large ones go on in parts."""

from __future__ import annotations

import weakref
from dataclasses import replace

import pytest
import torch
import transformers

from tests import tiny
from tfrnet import TFRConfig, TFRNet
from tfrnet.core.errors import InputError, TfrnetWarning
from tfrnet.data.examples import Encoded, Example
from tfrnet.masking.channels import find_channels
from tfrnet.masking.mask import ChannelMask
from tfrnet.methods.tfr import model as tfr_model
from tfrnet.methods.tfr import scoring
from tfrnet.methods.tfr.scoring import ScoreOptions, score_channels
from tfrnet.models import parts
from tfrnet.models import passes as module
from tfrnet.models.checkpointing import checkpointed
from tfrnet.models.forward import answer_losses, collate, evaluate_losses, frozen
from tfrnet.models.parts import FlattenedBatchError, in_parts
from tfrnet.models.passes import Passes, activation_budget, choose_passes, passes_within

LENGTH = 64


def kept_bytes(model: transformers.PreTrainedModel, examples: int, checkpointing: bool) -> int:
    """The bytes of all that a scoring pass keeps for its backward pass, weights apart."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(1, 90, (examples, LENGTH + 1), generator=generator).tolist()
    batch = collate([Encoded(tuple(row), LENGTH - 3) for row in rows], torch.device("cpu"))
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with (
        ChannelMask(model, find_channels(model)) as mask,
        frozen(model),
        checkpointed(model, checkpointing),
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
        torch.enable_grad(),
        mask.per_example(batch.size, batch.length),
    ):
        losses = answer_losses(model, batch)
    del losses
    return sum(kept.values())


def small_llama(dtype: torch.dtype) -> transformers.PreTrainedModel:
    config = transformers.LlamaConfig(
        hidden_size=128,
        intermediate_size=344,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=100,
    )
    return transformers.LlamaForCausalLM(config).eval().to(dtype)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_what_a_pass_keeps_is_foreseen(dtype: torch.dtype, checkpointing: bool, monkeypatch):
    model = small_llama(dtype)
    monkeypatch.setattr(module, "_ENOUGH_TOKENS", 0)
    budget = 8_000_000 if not checkpointing else 4_000_000
    chosen = passes_within(budget, model, LENGTH, checkpointing)
    assert chosen.gradient_checkpointing == checkpointing
    examples = chosen.tokens // LENGTH
    kept = kept_bytes(model, examples, checkpointing)
    # It fits, and not because next to nothing was asked for. (Of this small a model one layer,
    # which is computed again as a whole, is a large part; it is not among what is kept.)
    assert (0.05 if checkpointing else 0.4) * budget < kept <= budget


def test_activations_are_computed_again_only_where_they_leave_too_little_room():
    model = small_llama(torch.float32)
    roomy = passes_within(1 << 30, model, LENGTH, False)
    assert not roomy.gradient_checkpointing
    assert roomy == Passes(64, 8192, 16384, False)
    tight = passes_within(20 << 20, model, LENGTH, False)
    assert tight.gradient_checkpointing
    assert LENGTH < tight.tokens < roomy.tokens
    # The longest example has to fit too.
    budget = 200 << 20
    assert not passes_within(budget, model, 1000, False).gradient_checkpointing
    assert passes_within(budget, model, 7000, False).gradient_checkpointing
    assert passes_within(1, model, LENGTH, False).tokens == 1


def test_a_seven_billion_model_stays_within_its_share():
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(
            transformers.LlamaConfig(
                hidden_size=4096,
                intermediate_size=11008,
                num_hidden_layers=32,
                num_attention_heads=32,
                vocab_size=32000,
            ),
            dtype=torch.bfloat16,
        )
    weights = sum(p.nbytes for p in model.parameters())
    assert 13.4e9 < weights < 13.5e9
    # On a card of 24 GB, and on one with room for much more.
    for free in (10 << 30, 120 << 30):
        budget = activation_budget(model, free)
        assert weights + budget < 1.34 * weights
        chosen = passes_within(budget, model, 256, False)
        assert chosen.gradient_checkpointing
        # 24 retain examples go through it at once.
        assert chosen.tokens >= 24 * 256
        assert chosen.examples >= 24
        assert chosen.forward_tokens >= 8192
        # What an H200 took beside the weights, by tokens in a pass: measured.
        assert 0.576e6 * chosen.tokens < budget
        compiled = passes_within(budget, model, 256, False, compiled=True)
        assert compiled.gradient_checkpointing
        assert 24 * 256 <= compiled.tokens < budget / 0.474e6
    assert activation_budget(model, 2 << 30) == int(0.8 * (2 << 30))
    # What a request holds besides is taken off, as long as something is left.
    assert activation_budget(model, 120 << 30, held=1 << 30) == budget - (1 << 30)
    assert activation_budget(model, 120 << 30, held=1 << 40) == budget // 4


def test_smaller_models_have_what_seven_billion_take():
    model = tiny.make_model()
    weights = sum(p.nbytes for p in model.parameters())
    assert weights + activation_budget(model, 120 << 30) == 18_000_000_000
    # But never more than most of what is free.
    assert activation_budget(model, 10**9) == 800_000_000
    # Weights that are more by themselves have their share.
    large = torch.nn.Linear(100_000, 100_000, bias=False, device="meta")
    assert activation_budget(large, 10**12) == int(0.335 * 40_000_000_000)


def test_a_failed_pass_is_gone_before_a_smaller_one_is_tried():
    """Also what only the garbage collector would free."""
    held: list[weakref.ref] = []

    def work(part: list[int]) -> list[int]:
        assert all(reference() is None for reference in held)
        if len(part) > 1:
            activations = torch.zeros(1)
            activations.itself = activations
            held.append(weakref.ref(activations))
            raise torch.OutOfMemoryError("no")
        return part

    assert in_parts([0, 1, 2, 3], work) == [[0], [1], [2], [3]]
    assert len(held) == 3


@pytest.mark.parametrize(
    "said",
    [
        "CUDA error: CUBLAS_STATUS_INTERNAL_ERROR when calling `cublasGemmStridedBatchedEx(...)`",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR",
    ],
)
def test_a_library_that_lacks_memory_leads_to_smaller_passes_and_is_said(said):
    def work(part: list[int]) -> list[int]:
        if len(part) > 2:
            raise RuntimeError(said)
        return part

    with pytest.warns(TfrnetWarning, match=r"a pass of 4 examples failed with \w+_STATUS_\w+"):
        assert in_parts([0, 1, 2, 3], work) == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    "said", ["CUDA error: CUBLAS_STATUS_NOT_SUPPORTED", "device-side assert triggered"]
)
def test_another_error_of_a_library_is_not_taken_for_a_lack_of_memory(said):
    def work(part: list[int]) -> list[int]:
        raise RuntimeError(said)

    with pytest.raises(RuntimeError, match=said):
        in_parts([0, 1, 2, 3], work)


@pytest.mark.parametrize(
    ("changed", "rows"),
    [
        # Retain examples and siblings twice.
        ({}, 6 + 48 + 2),
        ({"hold_guard": True}, 6 + 48 + 5 + 2),
        ({"hold_guard": True, "use_retain": False}, 6 + 48 + 2),
        ({"retain_examples": 100}, 8 + 48 + 2),
        ({"siblings": 0}, 6 + 2),
        ({"step": "solve"}, 6 + 2),
        ({"step": "fisher", "memory_rows": 160}, 0),
    ],
)
def test_the_gradients_that_a_solved_step_holds_are_foreseen(changed, rows, monkeypatch):
    asked = []

    def choose(model, longest, checkpointing, compiled, held):
        asked.append(held)
        return Passes()

    monkeypatch.setattr(tfr_model, "choose_passes", choose)
    config = TFRConfig(retain_examples=3, guard_examples=5, memory_rows=2)
    net = TFRNet(
        tiny.make_model(),
        tiny.make_tokenizer(),
        tiny.examples(4),
        replace(config, **changed),
        guard=tiny.examples(5, 4),
        batch_size=None,
    )
    assert asked == [4 * rows * net.mask.index.total]


def test_on_a_cpu_passes_have_no_more_tokens_than_eight_long_examples():
    model = tiny.make_model()
    assert choose_passes(model, 50, False) == Passes(64, 512, 512, False, overhead=30)
    assert choose_passes(model, 256, True) == Passes(64, 2048, 2048, True, overhead=30)
    # Of other devices, and of several, nothing is known.
    assert choose_passes(model.to("meta"), 50, False) == Passes(8, None, None, False)


@pytest.mark.parametrize(("rows", "examples"), [(100, 64), (20, 20), (1, 8)])
def test_on_a_cpu_gradients_of_many_channels_leave_room_for_fewer_examples(
    rows, examples, monkeypatch
):
    model = tiny.make_model()
    channels = sum(channel.width for channel in find_channels(model))
    monkeypatch.setattr(module, "_GRADIENT_BYTES_CPU", 4 * channels * rows)
    assert choose_passes(model, 50, False).examples == examples


def test_on_a_cpu_short_examples_go_through_together_and_a_number_given_is_kept():
    def sizes(data: list[Example], **options: int) -> list[int]:
        net = TFRNet(tiny.make_model(), tiny.make_tokenizer(), data, **options)
        return [len(group) for group in net._options.groups(net._retain_encoded)]

    data = tiny.examples(20)
    assert sizes(data) == [10, 10]
    assert sizes(data, batch_size=8) == [8, 8, 4]
    assert sizes([*data, Example("", "red " * 100, is_text=True)]) == [10, 10, 1]


def test_odd_models_do_no_harm():
    model = tiny.make_model()
    model.config.num_hidden_layers = 77  # so that its layers cannot be found
    assert passes_within(1 << 30, model, 50, False) == Passes()


@pytest.fixture
def no_garbage(monkeypatch) -> None:
    """To collect it takes a second among so many tests, and these leave none."""
    monkeypatch.setattr(parts, "free_garbage", lambda: None)


def too_large(limit: int):
    def work(part: list[int]) -> list[int]:
        if len(part) > limit:
            raise torch.OutOfMemoryError("no")
        return [-i for i in part]

    return work


@pytest.mark.usefixtures("no_garbage")
@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_what_does_not_fit_is_done_in_halves_in_its_order(limit: int):
    found = in_parts(list(range(7)), too_large(limit))
    assert [i for part in found for i in part] == [-i for i in range(7)]
    assert max(map(len, found)) <= limit


@pytest.mark.usefixtures("no_garbage")
def test_one_example_that_does_not_fit_has_a_last_resort():
    with pytest.raises(InputError, match="one example alone does not fit into the device's memory"):
        in_parts([1, 2], too_large(0))
    with pytest.raises(InputError, match="one example alone"):
        in_parts([1, 2], too_large(0), too_large(0))
    assert in_parts([1, 2], too_large(0), lambda part: [10 * i for i in part]) == [[10], [20]]


def test_a_pass_that_is_not_to_be_split_says_what_would_help():
    assert in_parts([1, 2], too_large(2), whole=True) == [[-1, -2]]
    with pytest.raises(InputError, match=r"a pass of 2 examples does not fit .*--batch-size"):
        in_parts([1, 2], too_large(1), whole=True)

    def broken(part: list[int]) -> list[int]:
        raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"):
        in_parts([1, 2], broken, whole=True)


def test_examples_that_cannot_be_told_apart_are_done_one_by_one():
    def work(part: list[int]) -> list[int]:
        if len(part) > 1:
            raise FlattenedBatchError("no")
        return part

    assert in_parts([3, 1, 2], work) == [[3], [1], [2]]


@pytest.mark.usefixtures("no_garbage")
@pytest.mark.parametrize("limit", [0, 1, 2])
def test_scores_are_the_same_where_memory_is_short(limit: int, monkeypatch, tokenizer):
    """With room for no example at all (0), activations are computed again."""
    model = tiny.make_model()
    net = TFRNet(model, tokenizer, tiny.examples(8), TFRConfig())
    examples = net._retain_encoded
    expected = score_channels(net.mask, examples, ScoreOptions(batch_size=5))
    real, sparing = scoring._batch_gradients, []

    def short(mask, batch, options, objective):
        again = any("forward" in m.__dict__ for m in model.model.layers)
        if batch.size > limit and not (again and batch.size == 1):
            raise torch.OutOfMemoryError("no")
        sparing.append(again)
        return real(mask, batch, options, objective)

    monkeypatch.setattr(scoring, "_batch_gradients", short)
    found = score_channels(net.mask, examples, ScoreOptions(batch_size=5))
    assert any(sparing) == (limit == 0)
    for name in ("magnitude", "signed", "gradient", "square"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name))
    net.detach()


@pytest.mark.usefixtures("no_garbage")
def test_losses_are_the_same_where_memory_is_short(monkeypatch, tokenizer):
    model = tiny.make_model()
    net = TFRNet(model, tokenizer, tiny.examples(9), TFRConfig())
    expected = evaluate_losses(model, net._retain_encoded, 8)
    import tfrnet.models.forward as forward

    real = forward.answer_losses

    def short(model, batch):
        if batch.size > 3:
            raise torch.OutOfMemoryError("no")
        return real(model, batch)

    monkeypatch.setattr(forward, "answer_losses", short)
    torch.testing.assert_close(evaluate_losses(model, net._retain_encoded, 8), expected)
    net.detach()
