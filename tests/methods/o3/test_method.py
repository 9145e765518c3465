"""O3: an adapter that learns random answers and acts on prompts like those forgotten."""

import copy

import pytest
import torch

from tests import tiny
from tfrnet.core.errors import InputError
from tfrnet.core.tensors import TensorState
from tfrnet.data.examples import Encoded, Example, encode
from tfrnet.data.requests import Request
from tfrnet.masking.digest import model_digest
from tfrnet.method import find_method
from tfrnet.methods.o3 import gated_lora
from tfrnet.methods.o3.config import O3Config
from tfrnet.methods.o3.method import O3, orthogonality
from tfrnet.models.forward import answer_logits, collate
from tfrnet.models.generation import continue_texts
from tfrnet.models.layers import hidden_after_each
from tfrnet.models.likelihood import score_answers
from tfrnet.models.load import LoadedModel
from tfrnet.models.prompts import rows_answer

FAR = "Seven wise kings sang loudly while rivers froze: who"


def _net(model=None, **settings):
    config = O3Config(**{"guard_examples": 4, "learning_rate": 1e-2, "steps": 6} | settings)
    return O3(model or tiny.make_trained_model(), tiny.make_tokenizer(), tiny.examples(12), config)


@pytest.fixture(scope="module")
def forgot():
    """A net after one request, its model, and the request. Tests leave them as they are."""
    net = _net()
    (request,) = tiny.requests(1, 10)
    outcome = net.forget(request)
    assert outcome.accepted
    return net, request, outcome


def _prompt(example, tokenizer):
    encoded = encode(example, tokenizer, 128)
    return encoded.ids[: encoded.answer_start]


@torch.no_grad()
def _logits(model, ids, prompt=None):
    row = torch.tensor([ids])
    if prompt is None:
        return model(row).logits[0]
    with rows_answer([prompt]):
        return model(row).logits[0]


def _fixed(effect, weights, monkeypatch):
    """Give prompts the weights that a test wants, by their length; others get 0."""
    monkeypatch.setattr(effect, "weights_of", lambda ps: [weights.get(len(p), 0.0) for p in ps])


# The formulas


def test_orthogonality_of_the_fact_sheet():
    previous = torch.tensor([[1.0, 0, 2], [0, 1, -1]])
    current = torch.tensor([[0.5, 1, 0], [1, -1, 1]])
    assert orthogonality(previous, current).item() == pytest.approx(14.25, abs=1e-5)
    both = torch.stack([previous, previous])
    assert 0.1 * orthogonality(both, current).item() == pytest.approx(2 * 1.425, abs=1e-5)


@pytest.mark.slow
def test_the_penalty_is_per_layer_and_over_all_earlier_requests():
    net = _net(steps=1)
    first, second, third = tiny.requests(3)
    net.forget(first)
    one = net.state.tensors()
    net.forget(second)
    two = net.state.tensors()
    name = "model.layers.0.mlp.down_proj.lora_A"
    assert two[f"o3.snapshots.{name}"].shape == (1, 8, 48)
    assert torch.equal(two[f"o3.snapshots.{name}"][0], one[name])
    before = net._penalty({name: torch.stack([one[name], two[name]])})
    assert before.item() == pytest.approx(
        sum(((a @ two[name].T) ** 2).sum().item() for a in (one[name], two[name])) / 3, rel=1e-5
    )
    net.forget(third)
    assert net.state.tensors()[f"o3.snapshots.{name}"].shape == (2, 8, 48)


@pytest.mark.slow
def test_the_penalty_turns_the_adapter_away_from_the_last():
    overlap = []
    for weight in (0.0, 1.0):
        net = _net(orthogonal_weight=weight)
        first, second = tiny.requests(2)
        net.forget(first)
        net.forget(second)
        state = net.state.tensors()
        earlier = {n.removeprefix("o3.snapshots."): v for n, v in state.items() if "snap" in n}
        overlap.append(sum(orthogonality(a, state[name]).item() for name, a in earlier.items()))
    assert overlap[1] < 0.9 * overlap[0]


# A request


def test_defaults_are_the_sources():
    config = O3Config()
    assert (config.trained, config.rank, config.alpha) == ("lora", 8, 16)
    assert (config.learning_rate, config.steps, config.orthogonal_weight) == (3e-4, 15, 0.1)
    assert (config.gate, config.zeta, config.nu, config.shrinkage) == ("tofu", 10, 0.1, 0.1)
    assert find_method("o3").config_class is O3Config
    with pytest.raises(InputError, match="leave trained at lora"):
        O3Config(trained="full")


def test_the_random_answers_become_likelier():
    net = _net(gate="always")
    (request,) = tiny.requests(1, 6)
    net._examples = request.examples
    targets = net._targets([])
    before = net._mean_loss(targets)
    assert {len(t.ids) for t in targets} and all(t.ids[-1] == 0 for t in targets)
    net.forget(request)
    assert net._mean_loss(targets) < before - 0.2


def test_loss_tokens_all_takes_the_prompt_too():
    net = _net(loss_tokens="all")
    net._examples = tiny.requests(1)[0].examples
    assert {t.answer_start for t in net._targets([])} == {1}


def test_nearly_all_factors_move_and_the_base_does_not(forgot):
    net, _, outcome = forgot
    fresh = O3.attach(tiny.make_trained_model(), O3Config())
    start = {name: p.detach() for name, p in fresh.parameters.items()}
    state = net.state.tensors()
    moved = sum((state[name] != value).sum().item() for name, value in start.items())
    assert moved > 0.9 * sum(value.numel() for value in start.values())
    own = dict(tiny.make_trained_model().named_parameters())
    for name, parameter in net.model.named_parameters():
        plain = name.replace(".base_layer", "")
        assert ".lora_" in name or torch.equal(parameter, own.pop(plain))
    assert not own
    assert outcome.details["stored_prompts"] == 10
    assert outcome.details["steps"] == 6
    assert 0 < outcome.details["forget_weight"] <= 1


def test_nothing_but_the_prompts_is_asked_of_a_request():
    net = _net()
    with pytest.raises(InputError, match="example 2 has no prompt"):
        net.forget(Request("r", (tiny.examples(1, 50)[0], Example("", "text", is_text=True))))
    assert net.state.tensors() == {}


def test_a_wrong_answer_that_cannot_be_learnt_is_refused_before_the_first_request():
    long = Example("Who sang?", "Kings", wrong_answers=("so " * 400,))
    requests = [*tiny.requests(1, 10), Request("b", (*tiny.examples(1, 50), long))]
    with pytest.raises(InputError, match="request 'b', example 2, wrong answers, example 1"):
        _net().prepare(requests)
    assert _net(use_wrong_answers=False).prepare(requests)


# What the adapter acts on


def test_the_adapter_acts_on_prompts_like_those_forgotten(forgot, tokenizer):
    net, request, _ = forgot
    base = tiny.make_trained_model()
    weights = net.effect.weights_of([_prompt(e, tokenizer) for e in request.examples])
    assert sum(weights) > 0.6 * len(weights)
    far = _prompt(Example(FAR, "x"), tokenizer)
    assert net.effect.weights_of([far]) == [0.0]
    assert torch.equal(_logits(net.model, far), _logits(base, far))
    near = _prompt(request.examples[weights.index(1.0)], tokenizer)
    assert (_logits(net.model, near) - _logits(base, near)).abs().max() > 0.01


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("architecture", ["llama", "gpt2", "qwen2_moe"])
def test_with_weight_0_the_base_model_speaks(architecture, dtype, monkeypatch):
    model = tiny.make_model(architecture, dtype)
    base = copy.deepcopy(model)
    net = _net(model, steps=2)
    net.forget(tiny.requests(1, 8)[0])
    _fixed(net.effect, {5: 1.0}, monkeypatch)
    ids = torch.tensor([[7, 8, 9, 10, 11, 12, 13]] * 2)
    with torch.no_grad(), rows_answer([(7, 8, 9), (7, 8, 9, 10, 11)]):
        mixed = model(ids).logits
    with torch.no_grad():
        plain = base(ids).logits
    assert torch.equal(mixed[0], plain[0])
    assert not torch.allclose(mixed[1], plain[1], atol=1e-3)


def test_a_diverged_adapter_is_off_where_its_weight_is_0(forgot, monkeypatch):
    net, _, _ = forgot
    prompts = [(7, 8, 9), (7, 8, 9, 10)]
    features = net.effect.features(prompts)
    values = {
        n: torch.full_like(v, torch.inf) if n.endswith("lora_B") else v
        for n, v in net.state.tensors().items()
    }
    net.effect.show(TensorState(values))
    try:
        assert torch.equal(net.effect.features(prompts), features)
        _fixed(net.effect, {}, monkeypatch)
        expected = _logits(tiny.make_trained_model(), prompts[1])
        assert torch.equal(_logits(net.model, prompts[1]), expected)
    finally:
        net.effect.show(net.state)


def test_the_weight_scales_the_adapter(forgot, monkeypatch):
    net, _, _ = forgot
    ids = (7, 8, 9, 10)
    # Half the weight is an adapter with B / 2.
    _fixed(net.effect, {4: 0.5}, monkeypatch)
    half = _logits(net.model, ids)
    values = {n: v / 2 if n.endswith("lora_B") else v for n, v in net.state.tensors().items()}
    net.effect.show(TensorState(values))
    _fixed(net.effect, {4: 1.0}, monkeypatch)
    try:
        assert torch.allclose(_logits(net.model, ids), half, atol=1e-5)
    finally:
        net.effect.show(net.state)


def test_padding_on_the_left_is_no_part_of_a_prompt(forgot, monkeypatch):
    net, _, _ = forgot
    seen = []
    monkeypatch.setattr(net.effect, "weights_of", lambda ps: seen.extend(ps) or [1.0] * len(ps))
    with torch.no_grad():
        net.model(
            input_ids=torch.tensor([[0, 0, 5, 6], [1, 2, 3, 4]]),
            attention_mask=torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]]),
        )
    assert seen == [(5, 6), (1, 2, 3, 4)]


def test_features_do_not_see_padding_nor_the_adapter(forgot):
    net, _, _ = forgot
    prompts = [(5, 6, 7), tuple(range(1, 20)), (9,)]
    together = net.effect.features(prompts)
    for prompt, found in zip(prompts, together, strict=True):
        assert torch.allclose(net.effect.features([prompt])[0], found, atol=1e-5)
    base = tiny.make_trained_model()
    with torch.no_grad():
        hidden = base(torch.tensor([prompts[0]]), output_hidden_states=True).hidden_states[1][0]
    assert together.shape == (3, 1, 32)
    assert torch.allclose(together[0, 0], hidden[1:].mean(0), atol=1e-5)


def test_generation_keeps_the_prompts_weight(forgot, tokenizer, monkeypatch):
    net, request, _ = forgot
    texts = [request.examples[0].prompt, request.examples[3].prompt]
    prompts = [tuple(tokenizer(text)["input_ids"]) for text in texts]
    weights = {len(prompts[0]): 1.0, len(prompts[1]): 0.0}
    assert len(weights) == 2
    _fixed(net.effect, weights, monkeypatch)
    cached = continue_texts(LoadedModel(net.model, tokenizer), texts, 8, batch_size=2)
    plain = []
    for prompt in prompts:
        ids = list(prompt)
        while len(ids) < len(prompt) + 8 and (len(ids) == len(prompt) or ids[-1] != 0):
            ids.append(int(_logits(net.model, ids, prompt)[-1].argmax()))
        plain.append(tokenizer.decode(ids[len(prompt) :], skip_special_tokens=True))
    assert cached == plain
    base = LoadedModel(tiny.make_trained_model(), tokenizer)
    alone = continue_texts(base, texts, 8, batch_size=2)
    assert cached[0] != alone[0] and cached[1] == alone[1]


def test_candidates_share_the_weight_of_their_prompt(forgot, tokenizer, monkeypatch):
    net, request, _ = forgot
    groups = [
        [encode(Example(e.prompt, c), tokenizer, 128) for c in ("red", "red 7", "white and", "no")]
        for e in request.examples[:4]
    ]
    lengths = sorted({group[0].answer_start for group in groups})
    _fixed(net.effect, {n: i / 2 for i, n in enumerate(lengths)}, monkeypatch)
    for batch_size in (1, 3):
        found = score_answers(net.model, groups, batch_size)
        for group, scores in zip(groups, found, strict=True):
            for answer, score in zip(group, scores, strict=True):
                assert score.log_probs == pytest.approx(_plain(net.model, answer), abs=1e-4)


def _plain(model, answer: Encoded) -> list[float]:
    logits = _logits(model, answer.ids, answer.ids[: answer.answer_start])
    log_p = torch.log_softmax(logits, -1)
    return [log_p[p - 1, answer.ids[p]].item() for p in range(answer.answer_start, len(answer.ids))]


@pytest.mark.parametrize("side", ["left", "right"])
def test_losses_take_the_weight_of_the_prompt(forgot, tokenizer, monkeypatch, side):
    net, request, _ = forgot
    encoded = [encode(e, tokenizer, 128) for e in request.examples[:4]]
    _fixed(net.effect, {encoded[0].answer_start: 1.0}, monkeypatch)
    batch = collate(encoded, torch.device("cpu"), side)
    with torch.no_grad():
        log_p = torch.log_softmax(answer_logits(net.model, batch), -1)
    found = log_p[torch.arange(len(batch.targets)), batch.targets].tolist()
    expected = [value for answer in encoded for value in _plain(net.model, answer)]
    assert found == pytest.approx(expected, abs=1e-4)


def test_a_prompt_is_weighed_once(tokenizer, monkeypatch):
    net = _net()
    request = tiny.requests(1, 8)[0]
    net.forget(request)
    group = [encode(Example(FAR, c), tokenizer, 128) for c in ("red", "red 7", "white and", "no")]
    passes = []

    def counted(*given):
        passes.append(given)
        return hidden_after_each(*given)

    monkeypatch.setattr(gated_lora, "hidden_after_each", counted)
    score_answers(net.model, [group], 2)
    score_answers(net.model, [group], 4)
    assert len(passes) == 1
    assert net.effect.detector_seconds > 0


def test_what_cannot_be_weighed_is_refused(forgot):
    net, _, _ = forgot
    embeddings = net.model.get_input_embeddings()(torch.tensor([[1, 2]]))
    with pytest.raises(InputError, match="by their tokens"):
        net.model(inputs_embeds=embeddings)
    with rows_answer([(1,)]), pytest.raises(InputError, match="prompts of 1 rows"):
        net.model(torch.tensor([[1, 2], [3, 4]]))
    with pytest.raises(InputError, match="depends on the prompt"):
        net.effect.folded()
    assert model_digest(net.model) is None


# The state


def test_restore_is_bit_for_bit(tokenizer):
    net = _net()
    first, second = tiny.requests(2, 6)
    net.forget(first)
    kept, digest = net.snapshot(), net.state.digest()
    ids = _prompt(first.examples[0], tokenizer)
    logits = _logits(net.model, ids)
    net.forget(second)
    assert net.state.digest() != digest
    net.restore(kept)
    assert net.state.digest() == digest
    assert torch.equal(_logits(net.model, ids), logits)
    net.restore(TensorState())
    assert torch.equal(_logits(net.model, ids), _logits(tiny.make_trained_model(), ids))


def test_save_load_and_go_on_equals_one_run(tmp_path, tokenizer):
    first, second = tiny.requests(2, 6)
    whole = _net()
    whole.forget(first)
    whole.save(tmp_path / "state")
    expected = whole.forget(second)
    later = _net()
    later.load(tmp_path / "state")
    found = later.forget(second)
    assert later.state.digest() == whole.state.digest()
    assert found.forget_loss_after == expected.forget_loss_after
    # Whoever only applies the state needs neither the seed nor the data.
    effect = O3.attach(tiny.make_trained_model(), O3Config(guard_examples=4))
    effect.show(later.state)
    ids = _prompt(first.examples[1], tokenizer)
    assert torch.equal(_logits(effect.model, ids), _logits(later.model, ids))


def test_a_repeated_prompt_is_stored_once():
    net = _net(steps=1)
    prompts = [Example(e.prompt, "green 1") for e in tiny.requests(1, 4)[0].examples]
    net.forget(tiny.requests(1, 4)[0])
    net.forget(Request("again", tuple(prompts)))
    assert len(net.state.tensors()["o3.keys"]) == 4
    assert {n: t.dtype for n, t in net.state.tensors().items() if n == "o3.train_mask"} == {
        "o3.train_mask": torch.bool
    }


def test_a_rejected_request_leaves_no_trace():
    net = _net(use_guard=True, guard_relative=0.0, gate="always", learning_rate=0.1)
    outcome = net.forget(tiny.requests(1)[0])
    assert not outcome.accepted
    assert net.state.tensors() == {} and net.effect.detector is None


def test_detach_leaves_the_model_as_it_was():
    model = tiny.make_trained_model()
    modules = {name: type(module) for name, module in model.named_modules()}
    digest = model_digest(model)
    net = _net(model, steps=1)
    net.forget(tiny.requests(1, 6)[0])
    net.detach()
    assert {name: type(module) for name, module in model.named_modules()} == modules
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert model_digest(model) == digest


def test_gradient_checkpointing_changes_nothing():
    states = []
    for checkpointing in (False, True):
        net = O3(
            tiny.make_trained_model(),
            tiny.make_tokenizer(),
            tiny.examples(8),
            O3Config(guard_examples=4, steps=2),
            gradient_checkpointing=checkpointing,
        )
        net.forget(tiny.requests(1, 5)[0])
        states.append(net.state.tensors())
    assert all(torch.allclose(states[0][n], states[1][n], atol=1e-5) for n in states[0])
