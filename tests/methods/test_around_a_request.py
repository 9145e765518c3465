"""What may go wrong around a request of any training method."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from accelerate import disk_offload
from peft import LoraConfig

from tests import tiny
from tests.methods.test_methods import RETAIN, STREAM, make
from tfrnet.core.errors import InputError
from tfrnet.core.outcome import Outcome
from tfrnet.data.examples import Example
from tfrnet.data.requests import Request
from tfrnet.models.forward import token_losses
from tfrnet.session import Session
from tfrnet.training.optimiser import MasterAdamW
from tfrnet.training.weights_effect import WeightsEffect

pytestmark = pytest.mark.usefixtures("one_thread")


# What was there before


@pytest.mark.parametrize(("name", "trained"), [("ga", "full"), ("llm-eraser", "lora")])
def test_gradients_of_others_are_neither_used_nor_lost(name, trained):
    clean = make(name, trained, steps=1)
    clean.forget(STREAM[0])
    model = tiny.make_trained_model()
    own = {key: torch.ones_like(p) for key, p in model.named_parameters()}
    for key, parameter in model.named_parameters():
        parameter.grad = own[key]
    unlearner = make(name, trained, model, steps=1)
    unlearner.forget(STREAM[0])
    assert unlearner.snapshot().digest() == clean.snapshot().digest()
    unlearner.detach()
    assert all(p.grad is own[key] for key, p in model.named_parameters())
    assert all(p.requires_grad for p in model.parameters())


def test_the_random_numbers_of_others_stay_as_they_are():
    before = torch.get_rng_state()
    model = tiny.make_trained_model()
    torch.set_rng_state(before)
    make("ga", "lora", model).forget(STREAM[0])
    assert torch.equal(torch.get_rng_state(), before)


def test_without_memory_for_float32_copies_no_parameter_gathers_gradients(monkeypatch):
    parameters = {"a": torch.nn.Parameter(torch.ones(2), requires_grad=False)}

    def no_memory(*args: object, **kwargs: object) -> None:
        raise MemoryError

    monkeypatch.setattr(torch.optim, "AdamW", no_memory)
    with pytest.raises(MemoryError):
        MasterAdamW(parameters, {}, 1e-3, 0.0)
    assert not parameters["a"].requires_grad


# Retain data


@pytest.mark.parametrize("name", ["ga", "graddiff", "rmu"])
def test_new_retain_data_must_not_be_empty(name):
    unlearner = make(name)
    with pytest.raises(InputError, match="retain data is needed"):
        unlearner.forget(STREAM[0], retain=[])
    assert unlearner.retain == RETAIN
    assert unlearner.forget(STREAM[0]).accepted


@pytest.mark.parametrize("retain", [STREAM[0].examples, (Example("Q", "long " * 300),)])
def test_new_retain_data_of_a_refused_request_are_not_kept(retain):
    unlearner = make("graddiff")
    with pytest.raises(InputError):
        unlearner.forget(STREAM[0], retain=list(retain))
    assert unlearner.retain == RETAIN
    plain = make("graddiff")
    plain.forget(STREAM[0])
    unlearner.forget(STREAM[0])
    assert unlearner.snapshot().digest() == plain.snapshot().digest()


# What a method cannot train


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("rmu", {"trained_layers": ()}, "trained_layers is empty"),
        ("rmu", {"trained_module": "mlp"}, "no weight model.layers.0.mlp.weight"),
        ("asu", {"smoothed_layers": ()}, "smoothed_layers is empty"),
    ],
)
def test_settings_that_leave_nothing_to_do_are_refused(name, settings, words):
    with pytest.raises(InputError, match=words):
        make(name, "full", **settings).forget(STREAM[0])


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        (("q_proj", "input_layernorm"), "not supported"),
        (("q_proj", "embed_tokens"), "embed_tokens, which is not a linear projection"),
        (("nope",), "not found"),
        ("(", "unterminated"),
    ],
)
def test_an_adapter_that_cannot_be_put_on_leaves_the_model_as_it_was(targets, words):
    model = tiny.make_trained_model()
    modules = {name: id(module) for name, module in model.named_modules()}
    with pytest.raises(InputError, match=words):
        make("ga", "lora", model, target_modules=targets)
    assert {name: id(module) for name, module in model.named_modules()} == modules
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert not hasattr(model, "peft_config")


def test_an_adapter_that_is_there_already_is_not_written_over():
    model = tiny.make_trained_model()
    model.add_adapter(LoraConfig(r=4, target_modules=["q_proj"], init_lora_weights=False))
    before = model(torch.tensor([[5, 6, 7]])).logits
    with pytest.raises(InputError, match="already has an adapter"):
        make("ga", "lora", model)
    assert torch.equal(model(torch.tensor([[5, 6, 7]])).logits, before)


@pytest.mark.parametrize("trained", ["full", "lora"])
def test_an_offloaded_model_is_refused(trained, tmp_path: Path):
    model = tiny.make_trained_model()
    disk_offload(model, str(tmp_path), execution_device=torch.device("cpu"))
    with pytest.raises(InputError, match="offloaded"):
        make("simnpo", trained, model)


def test_the_weights_of_a_quantised_model_are_not_trained():
    model = tiny.make_trained_model()
    model.is_quantized = True  # some kinds keep floating-point codes, or buffers
    with pytest.raises(InputError, match=r"quantised.*trained=lora"):
        WeightsEffect(model)


# What is no number


@pytest.mark.parametrize("name", ["ga", "asu", "rmu", "o3", "llm-eraser"])
def test_a_forget_loss_that_is_nan_before_the_request_is_refused(name, tmp_path: Path):
    model, tokenizer = tiny.make_trained_model(), tiny.make_tokenizer()
    request = Request("odd", tuple(Example(f"Qzx {i} is", f"@@#{i}") for i in range(3)))
    retained = {token for e in RETAIN for token in tokenizer(e.joined)["input_ids"]}
    asked = {token for e in request.examples for token in tokenizer(e.joined)["input_ids"]}
    with torch.no_grad():
        model.get_input_embeddings().weight[sorted(asked - retained)] = float("nan")
    config = make(name).config
    with Session(model, tokenizer, tmp_path, RETAIN, method=name, config=config) as session:
        with pytest.raises(InputError, match="loss on request 'odd' is nan before"):
            session.forget(request)
        assert session.store.generation == 0
        assert session.forget(STREAM[0]).accepted


def test_details_that_are_no_numbers_are_null_in_the_ledger():
    outcome = Outcome("a", "rejected", "", 1.0, 1.0, 1.0, 1.0, 1.0, details={"x": float("nan")})
    assert outcome.to_dict()["details"] == {"x": None}


# Several devices


def test_losses_are_computed_where_the_logits_are():
    """The meta device stands in for a second GPU."""
    logits = torch.zeros(3, 5, device="meta")
    assert token_losses(logits, torch.tensor([1, 2, 3])).device.type == "meta"
