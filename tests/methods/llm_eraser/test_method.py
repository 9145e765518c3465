"""LLM-Eraser on a stream: what a request prunes and trains, and that it can be undone."""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests import tiny
from tfrnet.core.errors import InputError
from tfrnet.data.requests import Request
from tfrnet.method import find_method
from tfrnet.methods.llm_eraser import importance as gathering
from tfrnet.methods.llm_eraser.config import LLMEraserConfig
from tfrnet.methods.llm_eraser.method import METHOD, LLMEraser, Pruning
from tfrnet.methods.llm_eraser.pruning import MASK
from tfrnet.models.forward import token_losses
from tfrnet.training import loop, objectives

IDS = torch.arange(1, 31).view(2, 15)
TOTAL = 3 * 48


def logits(model):
    with torch.no_grad():
        return model(IDS).logits


def make(model=None, batch_size: int = 8, **settings) -> LLMEraser:
    few = {"guard_examples": 2, "score_examples": 12}  # fast
    values = {"budget": 6, "max_pruned": 0.2, "steps": 3, **few, **settings}
    config = LLMEraserConfig.from_dict(values)
    model = tiny.make_model() if model is None else model
    return LLMEraser(model, tiny.make_tokenizer(), tiny.examples(50), config, batch_size=batch_size)


def pruned(net) -> set[int]:
    return set((net.effect.mask_of(net.state) == 0).nonzero().flatten().tolist())


def encoded(net, examples):
    return [net._target(e) for e in net.encode(examples, "test data")]


# Settings


def test_the_method_is_found_with_the_fact_sheets_numbers() -> None:
    assert find_method("llm-eraser") is METHOD
    config = LLMEraserConfig()
    assert (config.trained, config.rank, config.alpha) == ("lora", 8, 16)
    assert (config.learning_rate, config.steps, config.retain_batch) == (1e-4, 20, 8)
    assert (config.budget, config.max_pruned, config.layers) == (128, 0.04, None)
    assert (config.score_examples, config.score_weight) == (40, 0.2)
    assert LLMEraserConfig.from_dict(config.to_dict()) == config
    assert config.with_overrides(["layers=1,2"]).layers == (1, 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"trained": "full"}, "prunes channels of frozen weights.*trained=lora"),
        ({"trained": "half"}, "trained must be lora"),
        ({"layers": ()}, "budget=0"),
        ({"layers": (-1,)}, "at least 0"),
        ({"budget": -1}, "budget must be at least 0"),
        ({"max_pruned": 1.1}, "between 0 and 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message) -> None:
    with pytest.raises(InputError, match=message):
        LLMEraserConfig(**settings)


def test_a_layer_that_is_not_there_is_refused_and_the_model_left_alone() -> None:
    model = tiny.make_model()
    modules = [name for name, _ in model.named_modules()]
    with pytest.raises(InputError, match="layers 0 to 2"):
        make(model, layers=(3,))
    assert [name for name, _ in model.named_modules()] == modules


@pytest.mark.parametrize("architecture", ["gpt2", "phi3", "mixtral"])
def test_a_model_without_gated_mlps_is_refused(architecture) -> None:
    with pytest.raises(InputError, match="no gate_proj"):
        make(tiny.make_model(architecture))


# Pruning


@pytest.mark.parametrize(
    ("batch_size", "tokens"),
    [(3, "answer"), pytest.param(100, "answer", marks=pytest.mark.slow), (3, "all")],
)
def test_a_request_prunes_the_lowest_scores(batch_size, tokens) -> None:
    settings = {"score_examples": 20, "score_tokens": tokens, "ranking": "global"}
    net = make(batch_size=batch_size, **settings)
    (request,) = tiny.requests(1, 8)
    first = make(batch_size=100, **settings)
    retain = [first._ended(e) for e in first._retain_sample(20, "score")]
    forget = encoded(first, request.examples)
    assert len(retain) == 20
    if tokens == "all":
        retain, forget = ([replace(e, answer_start=1) for e in part] for part in (retain, forget))
    scores = importance(retain) - 0.2 * importance(forget)
    net.forget(request)
    assert pruned(net) == set(scores.argsort()[:6].tolist())
    # The forget data matters, and so does retain data: neither alone chooses these.
    assert pruned(net) != set(importance(retain).argsort()[:6].tolist())


def importance(examples) -> torch.Tensor:
    """Sum |w * g| of the plain model's token mean, one example after the other."""
    model = tiny.make_model()
    model.zero_grad()
    tokens = sum(len(e.ids) - e.answer_start for e in examples)
    for example in examples:
        ids = torch.tensor([example.ids])
        log_p = torch.log_softmax(model(ids).logits[0, :-1], -1)
        nll = -log_p.gather(1, ids[0, 1:, None])[example.answer_start - 1 :]
        (nll.sum() / tokens).backward()
    parts = []
    for layer in model.model.layers:
        gate, up, down = (
            (p.weight * p.weight.grad).abs()
            for p in (layer.mlp.gate_proj, layer.mlp.up_proj, layer.mlp.down_proj)
        )
        parts.append(gate.sum(1) + up.sum(1) + down.sum(0))
    return torch.cat(parts).detach()


def test_every_request_prunes_its_budget_anew_up_to_the_cap() -> None:
    net = make(max_pruned=0.1, steps=1)  # 14 channels
    seen: set[int] = set()
    for request, count in zip(tiny.requests(4), (6, 6, 2, 0), strict=True):
        outcome = net.forget(request)
        assert outcome.accepted
        new = pruned(net) - seen
        assert pruned(net) >= seen and len(new) == count
        seen = pruned(net)
        details = outcome.details
        assert (details["pruned_now"], details["pruned_in_all"]) == (count, len(seen))
        assert details["steps"] == 1
        assert ("max_pruned allows 14 of 144" in details.get("limited", "")) == (count < 6)
    mask = net.state.tensors()[MASK]
    assert mask.dtype == torch.uint8 and mask.shape == (TOTAL,)


def test_only_the_named_layers_are_pruned_and_when_they_are_full_it_is_said() -> None:
    net = make(layers=(1,), budget=50, max_pruned=1.0, steps=1)
    outcome = net.forget(tiny.requests(1)[0])
    assert pruned(net) == set(range(48, 96))
    assert "have no more channels" in outcome.details["limited"]


def test_the_channels_of_deep_models_come_from_the_middle() -> None:
    config = tiny.ARCHITECTURES["llama"]()
    config.num_hidden_layers = 8
    config.layer_types = None
    model = type(tiny.make_model())(config)
    net = make(model, budget=20, max_pruned=1.0, steps=1)
    net.forget(tiny.requests(1)[0])
    assert {channel // 48 for channel in pruned(net)} <= {4, 5}
    assert len(pruned(net)) == 20


def test_a_pruned_channel_contributes_exactly_nothing_after_later_requests() -> None:
    net = make()
    first, second = tiny.requests(2)
    net.forget(first)
    channel = min(pruned(net))
    net.forget(second)
    before = logits(net.model)
    mlp = net.effect.mlps[channel // 48]
    with torch.no_grad():
        net.effect.base_weight(mlp.projection("up_proj"))[channel % 48] += 3
        net.effect.base_weight(mlp.projection("down_proj"))[:, channel % 48] += 3
    assert torch.equal(logits(net.model), before)


def test_without_a_budget_nothing_is_pruned_or_scored() -> None:
    net = make(budget=0)
    outcome = net.forget(tiny.requests(1)[0])
    assert not pruned(net) and "limited" not in outcome.details
    assert outcome.details["steps"] == 3


# Training


def test_the_total_of_the_test_vector() -> None:
    net = make()
    forget = objectives.gradient_ascent(torch.tensor([3.0, 3.8]))
    total = net.config.retain_weight * 1.2 + net.config.forget_weight * float(forget)
    assert total == pytest.approx(1.166, abs=1e-6)
    assert net._forget_loss(None, torch.tensor([3.0, 3.8]), None, None) == forget


@pytest.mark.parametrize("batch_size", [2, 100])
def test_a_step_has_the_gradient_of_the_total(batch_size) -> None:
    net = make(batch_size=batch_size)
    request, other = tiny.requests(2)
    net.forget(request)
    forget = encoded(net, other.examples)
    retain = [net._ended(e) for e in net._retain_sample(8, "step", 5)]
    assert len(retain) == 8
    parameters = list(net.effect.parameters.values())
    for parameter in parameters:
        parameter.requires_grad_(True)

    def token_mean(examples):
        nll = []
        for example in examples:
            ids = torch.tensor([example.ids])
            log_p = torch.log_softmax(net.model(ids).logits[0, :-1], -1)
            nll.append(-log_p.gather(1, ids[0, 1:, None])[example.answer_start - 1 :, 0])
        return torch.cat(nll).mean()

    total = token_mean(retain) - 0.01 * token_mean(forget)
    expected = torch.autograd.grad(total, parameters)
    net._backward(forget, Pruning(net.effect.mask_of(net.state), 0), 5)
    for parameter, gradient in zip(parameters, expected, strict=True):
        assert torch.allclose(parameter.grad, gradient, atol=1e-6, rtol=1e-3)
    assert forget[0].ids[-1] == retain[0].ids[-1] == net.tokenizer.eos_token_id


def test_a_request_moves_the_adapter_and_no_weight() -> None:
    net = make(steps=20)
    own = {
        name: p.detach().clone() for name, p in net.model.named_parameters() if "lora" not in name
    }
    start = {name: p.detach().clone() for name, p in net.effect.parameters.items()}
    outcome = net.forget(tiny.requests(1)[0])
    values = net.state.tensors()
    changed = sum(int((values[name] != old).sum()) for name, old in start.items())
    assert outcome.details["steps"] == 20
    assert changed >= 0.9 * sum(old.numel() for old in start.values())
    assert all(torch.equal(p, own[n]) for n, p in net.model.named_parameters() if n in own)
    assert not any(p.requires_grad and "lora" in n for n, p in net.model.named_parameters())


def test_training_happens_without_the_pruned_channels(monkeypatch) -> None:
    net = make()
    seen = []
    step = LLMEraser._backward

    def watch(self, forget, reference, number):
        seen.append(sum(int(channels.sum()) for channels in self.effect._pruned.values()))
        return step(self, forget, reference, number)

    monkeypatch.setattr(LLMEraser, "_backward", watch)
    net.forget(tiny.requests(1)[0])
    assert seen == [6, 6, 6]


# As a whole or not at all


def test_restore_gives_the_same_logits_bit_for_bit() -> None:
    net = make()
    start = logits(net.model)
    first, second = tiny.requests(2)
    net.forget(first)
    state, after = net.snapshot(), logits(net.model)
    digest = state.digest()
    net.forget(second)
    assert not torch.equal(logits(net.model), after)
    net.restore(state)
    assert torch.equal(logits(net.model), after) and state.digest() == digest
    net.detach()
    assert torch.equal(logits(net.model), start)


@pytest.mark.parametrize("broken", ["loss", "gradient"])
def test_a_request_that_diverges_while_scoring_is_rejected(monkeypatch, broken) -> None:
    net = make()
    first, second = tiny.requests(2)
    net.forget(first)
    state, after = net.state, logits(net.model)
    if broken == "loss":
        monkeypatch.setattr(loop, "token_losses", lambda *a: token_losses(*a) * float("nan"))
    else:
        monkeypatch.setattr(
            gathering, "salience", lambda w, g, dim: (w * g).sum(1 - dim) * float("inf")
        )
    outcome = net.forget(second)
    assert not outcome.accepted and "diverged" in outcome.reason
    what = "the retain loss is nan" if broken == "loss" else "importance .* is not finite"
    assert re.search(what, outcome.reason)
    assert outcome.details["pruned_now"] == 0 and "limited" not in outcome.details
    assert net.state is state
    assert torch.equal(logits(net.model), after)


def test_a_request_that_diverges_in_training_is_rejected_with_its_mask() -> None:
    net = make(learning_rate=1e30)
    start = logits(net.model)
    outcome = net.forget(tiny.requests(1)[0])
    assert not outcome.accepted and "diverged" in outcome.reason
    assert outcome.details["pruned_now"] == 6
    assert not pruned(net) and torch.equal(logits(net.model), start)


def test_going_on_from_a_file_is_as_if_it_had_never_stopped(tmp_path: Path) -> None:
    first, second = tiny.requests(2)
    whole = make()
    whole.forget(first)
    whole.save(tmp_path / "state.safetensors")
    whole.forget(second)
    other = make()
    other.load(tmp_path / "state.safetensors")
    assert len(pruned(other)) == 6
    other.forget(second)
    assert other.state.digest() == whole.state.digest()
    assert torch.equal(logits(other.model), logits(whole.model))
    with METHOD.attach(tiny.make_model(), other.config) as effect:
        effect.show(METHOD.read_state(whole.state.tensors()))
        assert torch.equal(logits(effect.model), logits(whole.model))
        assert effect.layout() == whole.layout()


def test_detach_leaves_the_model_as_it_was() -> None:
    model = tiny.make_model()
    twin = copy.deepcopy(model)
    net = make(model)
    net.forget(tiny.requests(1)[0])
    net.detach()
    for module, other in zip(model.modules(), twin.modules(), strict=True):
        assert type(module) is type(other)
        assert not module._forward_pre_hooks and not module._forward_hooks
    for parameter, other in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(parameter, other) and parameter.requires_grad
        assert parameter.grad is None and not parameter._post_accumulate_grad_hooks
    assert torch.equal(logits(model), logits(twin))


def test_the_folded_weights_act_the_same() -> None:
    net = make(steps=10, learning_rate=1e-2)
    net.forget(tiny.requests(1)[0])
    plain = tiny.make_model()
    plain.load_state_dict(net.effect.folded(), strict=False)
    assert torch.allclose(logits(plain), logits(net.model), atol=1e-5, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("checkpointing", [False, True])
def test_it_works_in_bfloat16(checkpointing) -> None:
    model = tiny.make_model().to(torch.bfloat16)
    net = LLMEraser(
        model,
        tiny.make_tokenizer(),
        tiny.examples(50),
        LLMEraserConfig(budget=6, max_pruned=0.2, steps=2, guard_examples=2, score_examples=9),
        gradient_checkpointing=checkpointing,
    )
    outcome = net.forget(Request("one", tuple(tiny.examples(3, 1000))))
    assert outcome.accepted and len(pruned(net)) == 6
    factors = [v for name, v in net.state.tensors().items() if name != MASK]
    assert all(v.dtype == torch.float32 for v in factors)
    assert any(bool(v.any()) for name, v in net.state.tensors().items() if name.endswith("lora_B"))
