"""Compiled scoring against the hooks of every pass."""

from contextlib import nullcontext

import accelerate
import pytest
import torch
from torch._dynamo.utils import counters

from tests import tiny
from tests.masking.test_mask import all_channels, condition
from tfrnet.core.errors import InputError
from tfrnet.data.examples import Encoded
from tfrnet.masking import compiled
from tfrnet.masking.channels import find_channels
from tfrnet.masking.mask import ChannelMask, live_masks
from tfrnet.methods.tfr.scoring import ScoreOptions, score_channels
from tfrnet.models.forward import evaluate_losses
from tfrnet.models.layers import decoder_layers, hidden_after_each

LENGTHS = (9, 14, 12, 13, 20, 24)


def some_examples():
    return [
        Encoded(tuple((7 * i + 11 * number) % 300 + 1 for i in range(length)), length - 4)
        for number, length in enumerate(LENGTHS)
    ]


def with_zeros(total):
    choices = torch.tensor([1.0, 0.7, 0.05, 1e-6, 0.0])
    return choices[torch.randint(5, (total,), generator=torch.Generator().manual_seed(0))]


def gradients(mask, **options):
    found = score_channels(mask, some_examples(), ScoreOptions(**options), keep_examples=True)
    return found.examples.gradients


def everything(model, backend=None):
    with (
        ChannelMask(model, all_channels(model)) as mask,
        mask.compiled(backend) if backend else nullcontext(),
    ):
        found = [gradients(mask, batch_size=3)]
        mask.set(with_zeros(mask.index.total))
        found.append(gradients(mask, batch_size=3))
        found.append(gradients(mask, batch_size=2, gradient_checkpointing=True))
        found.append(gradients(mask, batch_size=6, tokens="answer"))
        found.append(evaluate_losses(model, some_examples(), 2))
        found.append(evaluate_losses(model, some_examples(), 3))
        padded = torch.tensor([[1] * 5, [1] * 3 + [0] * 2])
        with torch.no_grad():
            hidden = hidden_after_each(model, decoder_layers(model)[:2], padded, padded)
    return found + hidden


@pytest.mark.slow
def test_all_is_as_with_hooks_and_the_code_is_shared_by_layers_and_shapes():
    model = tiny.make_model("llama")
    expected = everything(model)
    torch._dynamo.reset()  # what tests before this one compiled
    counters.clear()
    found = everything(model, "aot_eager")
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    # With a gradient, with weights besides, and without either.
    assert counters["stats"]["unique_graphs"] == 3
    # A second request, or another model of the same kind, finds it all compiled.
    everything(tiny.make_model("llama"), "aot_eager")
    assert counters["stats"]["unique_graphs"] == 3


@pytest.mark.slow
def test_inductor_gives_the_losses_of_the_masked_model():
    model = tiny.make_model("llama")
    index = all_channels(model)
    losses = []
    with ChannelMask(model, index) as mask:
        mask.set(with_zeros(index.total))
        losses.append(evaluate_losses(model, some_examples(), 3))
        with mask.compiled():
            losses.append(evaluate_losses(model, some_examples(), 3))
        losses.append(evaluate_losses(model, some_examples(), 3))
    torch.testing.assert_close(losses[1], losses[0])
    assert torch.equal(losses[2], losses[0])


def test_afterwards_the_model_is_as_it_was():
    model = tiny.make_model("llama")
    before, names = condition(model), [set(vars(module)) for module in model.modules()]
    with ChannelMask(model, all_channels(model)) as mask:
        with mask.compiled():
            mask.set(with_zeros(mask.index.total))
            assert condition(model) != before
        assert len(dict(live_masks(model))) == len(mask.index)
    assert condition(model) == before
    assert [set(vars(module)) for module in model.modules()] == names


def test_generation_with_a_cache_is_masked_and_compiles_nothing():
    model = tiny.make_model("llama")
    texts = []
    counters.clear()
    with ChannelMask(model, all_channels(model)) as mask:
        mask.set(with_zeros(mask.index.total))
        for how in (nullcontext(), mask.compiled()):
            with how:
                prompt = torch.ones(1, 4).long()
                texts.append(model.generate(prompt, max_new_tokens=6, do_sample=False))
    assert torch.equal(*texts)
    assert counters["stats"]["unique_graphs"] == 0


def sees(model):
    return evaluate_losses(model, some_examples(), 3)


def test_what_cannot_be_compiled_is_refused_before_anything_is_done():
    placed = accelerate.cpu_offload(tiny.make_model("llama"), execution_device="cpu")
    experts = tiny.make_model("mixtral")
    mixed = tiny.make_model("llama", torch.bfloat16)
    mixed.model.layers[1].mlp.up_proj.float()
    packed = tiny.make_model("llama")
    bytes_ = torch.zeros_like(packed.model.layers[0].mlp.up_proj.weight, dtype=torch.uint8)
    packed.model.layers[0].mlp.up_proj.weight = torch.nn.Parameter(bytes_, requires_grad=False)
    refused = {
        "accelerate": placed,
        "experts": experts,
        "several dtypes": mixed,
        "sharded or quantised": packed,
    }
    for why, model in refused.items():
        with (
            pytest.warns() if why == "experts" else nullcontext(),
            ChannelMask(model, all_channels(model)) as mask,
        ):
            before = condition(model)
            with pytest.raises(InputError, match=why), mask.compiled():
                pass
            assert condition(model) == before


def test_a_torch_without_the_settings_is_refused(monkeypatch):
    monkeypatch.setitem(compiled._DYNAMO, "no_such_setting", 1)
    model = tiny.make_model("llama")
    with (
        ChannelMask(model, all_channels(model)) as mask,
        pytest.raises(InputError, match="too old"),
        mask.compiled(),
    ):
        pass


def test_a_compiler_that_fails_is_said_and_leaves_the_mask_as_it_was():
    def broken(graph, inputs):
        raise RuntimeError("no compiler here")

    model = tiny.make_model("llama")
    with ChannelMask(model, all_channels(model)) as mask:
        mask.set(with_zeros(mask.index.total))
        expected = sees(model)
        for backend, why in ((broken, "no compiler here"), ("no such backend", "backend")):
            with (
                pytest.raises(InputError, match=rf"(?s)cannot be compiled.*{why}"),
                mask.compiled(backend),
            ):
                model(torch.ones(2, 7).long(), use_cache=False)
            assert torch.equal(sees(model), expected)


def test_a_mask_that_is_taken_off_meanwhile_stays_off():
    model = tiny.make_model("llama")
    before = condition(model)
    mask = ChannelMask(model, all_channels(model))
    mask.set(with_zeros(mask.index.total))
    with mask.compiled("aot_eager"):
        with pytest.raises(RuntimeError, match="already"), mask.compiled("aot_eager"):
            pass
        mask.detach()
    assert condition(model) == before


@pytest.mark.slow
def test_the_backward_pass_ends_at_the_first_masked_layer():
    model = tiny.make_model("llama")
    late = find_channels(model, layers=(1,))
    needed = []

    def note(module, inputs, output):
        hidden = output[0] if isinstance(output, tuple) else output
        needed.append(hidden.requires_grad)

    model.model.layers[0].register_forward_hook(note)
    found = []
    for backend in (None, "aot_eager"):
        with (
            ChannelMask(model, late) as mask,
            mask.compiled(backend) if backend else nullcontext(),
        ):
            found.append(gradients(mask, batch_size=6))
    assert not any(needed)
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-6)
