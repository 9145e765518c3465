"""One battery for all methods that train: what the fact sheet says must hold, on small models."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from tests import tiny
from tfrnet.core.errors import InputError
from tfrnet.method import find_method, method_names
from tfrnet.training.loop import GradientUnlearner

TRAINED = [name for name in method_names() if issubclass(find_method(name), GradientUnlearner)]
BOTH = [name for name in TRAINED if name not in ("llm-eraser", "o3")]
VARIANTS = [(name, "full") for name in BOTH] + [(name, "lora") for name in TRAINED]
USUAL = [(name, "full" if name in BOTH else "lora") for name in TRAINED]
# Adapters where the weights are usual are many, and slow together.
ALL_VARIANTS = [
    pytest.param(*variant, marks=() if variant in USUAL else pytest.mark.slow)
    for variant in VARIANTS
]
# The small model has three layers, and learns at a rate that a large one would not survive.
FITTING = {"rmu": {"layer": 1}}
PROBE = torch.tensor([[5, 6, 7, 8, 9, 40, 41]])
RETAIN = tiny.examples(24)
STREAM = tiny.requests(3, size=8)


pytestmark = pytest.mark.usefixtures("one_thread")


def make(name: str, trained: str = "lora", model=None, seed: int = 0, batch_size=8, **settings):
    method = find_method(name)
    values = {"guard_examples": 4, "trained": trained, "learning_rate": 1e-3, "steps": 3}
    if trained == "lora":
        values["lora_factor"] = 1.0
    config = method.config_class.from_dict(values | FITTING.get(name, {}) | settings)
    return method(
        model or tiny.make_trained_model(),
        tiny.make_tokenizer(),
        RETAIN,
        config,
        seed=seed,
        batch_size=batch_size,
    )


def logits(unlearner) -> torch.Tensor:
    with torch.no_grad():
        return unlearner.model(PROBE).logits.clone()


@pytest.mark.parametrize(("name", "trained"), ALL_VARIANTS)
def test_a_request_changes_the_model_and_can_be_taken_back_bit_for_bit(name, trained):
    model = tiny.make_trained_model()
    with torch.no_grad():
        before = model(PROBE).logits.clone()
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    unlearner = make(name, trained, model)
    assert torch.equal(logits(unlearner), before)
    start = unlearner.snapshot()
    assert unlearner.forget(STREAM[0]).accepted
    first, after = unlearner.snapshot(), logits(unlearner)
    assert not torch.equal(after, before)
    assert unlearner.forget(STREAM[1]).accepted
    assert not torch.equal(logits(unlearner), after)
    unlearner.restore(first)
    assert torch.equal(logits(unlearner), after)
    unlearner.restore(start)
    assert torch.equal(logits(unlearner), before)
    unlearner.restore(first)
    unlearner.detach()
    assert model.state_dict().keys() == weights.keys()
    assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())
    with torch.no_grad():
        assert torch.equal(model(PROBE).logits, before)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


@pytest.mark.parametrize("name", ["npo", "llm-eraser", "o3"])
def test_without_a_number_a_step_takes_eight_examples_at_a_time(name):
    unlearner = make(name, model=tiny.make_model(), batch_size=None)
    assert [part.batch.size for part in unlearner._parts(unlearner._retain_encoded)] == [8, 8, 8]


def test_an_adapter_learns_at_ten_times_the_rate_of_the_weights():
    """B starts at 0 and Adam's first step is the rate, so that the rate can be read off."""
    unlearner = make("ga", "lora", learning_rate=1e-5, lora_factor=10.0, steps=1)
    unlearner.forget(STREAM[0])
    largest = max(
        float(value.abs().max())
        for name, value in unlearner.snapshot().tensors().items()
        if name.endswith("lora_B")
    )
    assert largest == pytest.approx(1e-4, rel=1e-2)
    assert find_method("ga").config_class().lora_factor == 10.0


@pytest.mark.parametrize(
    ("name", "trained", "preset"),
    [(*variant, "default") for variant in VARIANTS]
    + [
        (*variant, "published")
        for variant in USUAL
        if "published" in find_method(variant[0]).config_class.presets()
    ],
)
def test_a_request_moves_nearly_all_that_is_trained(name, trained, preset):
    """Catches steps that never happen and steps that rounding swallows."""
    given = {"learning_rate": find_method(name).config_class().learning_rate, "steps": 3}
    if preset == "published":
        given = find_method(name).config_class.presets()["published"] | {
            "forget_ceiling": 100.0,
            "steps": 3,
        }
    fields = find_method(name).config_class().to_dict()
    unlearner = make(name, trained, **{k: v for k, v in given.items() if k in fields})
    before = {k: p.detach().clone() for k, p in unlearner.effect.parameters.items()}
    outcome = unlearner.forget(STREAM[0])
    assert outcome.details["steps"] == unlearner.config.steps
    moved = total = 0
    for key, value in unlearner.effect.parameters.items():
        if "embed" not in key:  # words that do not occur have no gradient
            moved += int((value != before[key]).sum())
            total += value.numel()
    assert moved > 0.9 * total


@pytest.mark.parametrize(("name", "trained"), ALL_VARIANTS)
def test_saved_and_loaded_it_goes_on_like_one_that_never_stopped(name, trained, tmp_path):
    whole = make(name, trained)
    whole.forget(STREAM[0])
    whole.save(tmp_path / "state.safetensors")
    whole.forget(STREAM[1])
    second = make(name, trained)
    second.load(tmp_path / "state.safetensors")
    assert second.requests_seen == 1
    second.forget(STREAM[1])
    assert second.snapshot().digest() == whole.snapshot().digest()
    assert torch.equal(logits(second), logits(whole))


def test_a_state_of_another_method_is_not_loaded(tmp_path: Path):
    first = make("ga")
    first.save(tmp_path / "ga.safetensors")
    with pytest.raises(InputError, match="of method ga, not of npo"):
        make("npo").load(tmp_path / "ga.safetensors")


def test_a_state_of_other_settings_is_not_loaded(tmp_path: Path):
    path = tmp_path / "state.safetensors"
    first = make("ga", "full")
    first.forget(STREAM[0])
    first.save(path)
    with pytest.raises(InputError, match=r"not a state of these settings: it has no .*lora"):
        make("ga", "lora").load(path)


@pytest.mark.parametrize("name", ["ga", "graddiff", "npo"])
def test_the_forget_loss_rises(name):
    outcome = make(name, "full").forget(STREAM[0])
    assert outcome.forget_loss_after > outcome.forget_loss_before + 0.05


def test_simnpo_raises_the_forget_loss_where_it_does_not_saturate():
    outcome = make("simnpo", "full", beta=0.5, forget_weight=1.0, steps=10).forget(STREAM[0])
    assert outcome.forget_loss_after > outcome.forget_loss_before + 0.05


def test_asu_moves_towards_its_teacher():
    outcome = make("asu", "full", forget_weight=1.0, retain_weight=0.0).forget(STREAM[0])
    teacher = outcome.details["teacher_loss"]
    assert teacher > outcome.forget_loss_before
    assert outcome.forget_loss_before < outcome.forget_loss_after < teacher


@pytest.mark.parametrize("name", ["graddiff", "npo", "simnpo", "asu"])
def test_without_weights_nothing_moves(name):
    unlearner = make(name, "full", forget_weight=0.0, retain_weight=0.0)
    before = {k: p.detach().clone() for k, p in unlearner.effect.parameters.items()}
    unlearner.forget(STREAM[0])
    assert all(torch.equal(p, before[k]) for k, p in unlearner.effect.parameters.items())


def test_asu_without_smoothing_has_nothing_to_teach():
    settings = {"temperature": 1.0, "retain_weight": 0.0, "weight_decay": 0.0, "steps": 1}
    unlearner = make("asu", "full", **settings)
    before = {k: p.detach().clone() for k, p in unlearner.effect.parameters.items()}
    unlearner.forget(STREAM[0])
    # KL(p || p) has no gradient but rounding, which Adam's first step makes as large as its rate.
    worst = max(
        float((p.detach() - before[k]).abs().max()) for k, p in unlearner.effect.parameters.items()
    )
    assert worst <= 1.01e-3


@pytest.mark.parametrize("name", BOTH)
def test_the_size_of_a_pass_changes_rounding_only(name):
    values = []
    for batch_size in (8, 3):
        # Plain descent would do; one step of Adam is a sign, so the gradients are compared.
        unlearner = make(name, "full", batch_size=batch_size, steps=1)
        values.append(gradients(unlearner))
    for key, wanted in values[0].items():
        torch.testing.assert_close(values[1][key], wanted, rtol=1e-3, atol=1e-6)


def gradients(unlearner) -> dict[str, torch.Tensor]:
    (forget,) = unlearner.prepare([STREAM[0]])
    targets = [unlearner._target(example) for example in forget]
    reference = unlearner._reference(targets)
    for parameter in unlearner.effect.parameters.values():
        parameter.requires_grad_(True)
    unlearner._backward(targets, reference, 0)
    return {k: p.grad for k, p in unlearner.effect.parameters.items() if p.grad is not None}


@pytest.mark.parametrize("name", BOTH)
def test_gradient_checkpointing_changes_nothing(name):
    method = find_method(name)
    states = []
    for wanted in (False, True):
        config = method.config_class.from_dict(
            {"guard_examples": 4, "steps": 2} | FITTING.get(name, {})
        )
        unlearner = method(
            tiny.make_trained_model(),
            tiny.make_tokenizer(),
            RETAIN,
            config,
            gradient_checkpointing=wanted,
        )
        unlearner.forget(STREAM[0])
        states.append(unlearner.snapshot())
    assert states[0].digest() == states[1].digest()


# Bad luck


@pytest.mark.parametrize(("name", "trained"), ALL_VARIANTS)
def test_divergence_restores_the_last_state_and_says_so(name, trained):
    unlearner = make(name, trained)
    unlearner.forget(STREAM[0])
    state, before = unlearner.snapshot(), logits(unlearner)
    broken = make(name, trained, model=tiny.make_trained_model(), learning_rate=1e25)
    broken.restore(state)
    outcome = broken.forget(STREAM[1])
    assert outcome.outcome == "rejected"
    assert "diverged" in outcome.reason
    assert "the last state was restored" in outcome.reason
    assert broken.snapshot() is state
    assert torch.equal(logits(broken), before)
    assert outcome.to_dict()["method"] == name


@pytest.mark.parametrize(("name", "trained"), USUAL)
def test_the_guard_can_wrap_any_method(name, trained):
    free = make(name, trained, learning_rate=3e-2).forget(STREAM[0])
    guarded = make(name, trained, learning_rate=3e-2, use_guard=True, guard_relative=0.0)
    before = logits(guarded)
    outcome = guarded.forget(STREAM[0])
    assert outcome.guard_loss_after == pytest.approx(free.guard_loss_after, rel=1e-6)
    assert outcome.accepted == (free.guard_loss_after <= free.guard_loss_before)
    assert torch.equal(logits(guarded), before) == (not outcome.accepted)
    assert free.accepted


@pytest.mark.parametrize(("name", "trained"), USUAL)
def test_what_was_not_measured_is_not_recorded(name, trained):
    outcome = make(name, trained).forget(STREAM[0])
    assert outcome.retain_loss_before is None
    of_a_mask = ("selected", "recovery_pool", "recovered", "suppressed_now", "dormant", "capacity")
    assert [getattr(outcome, size) for size in of_a_mask] == [None] * len(of_a_mask)


def test_an_interrupted_request_leaves_no_trace():
    unlearner = make("ga", "full")
    before = logits(unlearner)

    def interrupt(stage: str) -> None:
        if "step 3" in stage:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        unlearner.forget(STREAM[0], report=interrupt)
    assert torch.equal(logits(unlearner), before)
    assert all(p.grad is None for p in unlearner.effect.parameters.values())
    assert unlearner.requests_seen == 0


# Precision


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "ga" else pytest.mark.slow) for name in BOTH]
)
def test_in_bfloat16_small_steps_add_up_in_float32(name):
    model = tiny.make_trained_model().to(torch.bfloat16)
    start = {key: value.clone() for key, value in model.named_parameters()}
    unlearner = make(name, "full", model, learning_rate=1e-5, steps=2)
    unlearner.forget(STREAM[0])
    moved = total = 0
    for key, value in unlearner.snapshot().tensors().items():
        assert value.dtype == torch.float32
        if key in start and "embed" not in key:
            moved += int((value != start[key].float()).sum())
            total += value.numel()
    assert moved > 0.9 * total
    # The next request goes on from the float32 values, not from the model's rounded ones.
    first = unlearner.snapshot().tensors()
    unlearner.forget(STREAM[1])
    second = unlearner.snapshot().tensors()
    key = next(k for k in second if k in start and "norm" not in k and "embed" not in k)
    assert float((second[key] - first[key]).abs().max()) < 3e-4
    assert torch.equal(dict(model.named_parameters())[key], second[key].to(torch.bfloat16))


# What a method needs of a model


def test_rmu_changes_only_the_projections_it_names():
    unlearner = make("rmu", "full", layer=2)
    before = {k: v.clone() for k, v in unlearner.model.state_dict().items()}
    unlearner.forget(STREAM[0])
    changed = {k for k, v in unlearner.model.state_dict().items() if not torch.equal(v, before[k])}
    assert changed == {f"model.layers.{i}.mlp.down_proj.weight" for i in (0, 1, 2)}


def test_rmu_measures_its_coefficient_once_and_carries_it():
    unlearner = make("rmu", "full")
    first = unlearner.forget(STREAM[0]).details["coefficient"]
    assert unlearner.forget(STREAM[1]).details["coefficient"] == pytest.approx(first)
    assert make("rmu", "full", coefficient=6.5).forget(STREAM[0]).details["coefficient"] == 6.5


def test_rmu_pulls_at_the_position_that_predicts_a_one_token_answer():
    from tfrnet.data.examples import Encoded
    from tfrnet.models.forward import collate
    from tfrnet.models.layers import decoder_layers, hidden_after
    from tfrnet.training.objectives import to_control

    model = tiny.make_trained_model()
    example = Encoded((5, 6, 7, 8, 9), answer_start=4)
    batch = collate([example], torch.device("cpu"))
    states = hidden_after(model, decoder_layers(model)[1], batch)
    assert states.shape[0] == 4  # the answer's token is no input
    states.retain_grad()
    to_control(states, torch.ones(states.shape[1])).backward()
    assert float(states.grad[-1].abs().sum()) > 0


def test_hidden_states_are_those_of_the_whole_model():
    from tfrnet.data.examples import Encoded
    from tfrnet.models.forward import collate
    from tfrnet.models.layers import decoder_layers, hidden_after

    model = tiny.make_trained_model()
    examples = [Encoded((5, 6, 7, 8, 9), 4), Encoded((5, 6, 7), 2)]
    batch = collate(examples, torch.device("cpu"))
    found = hidden_after(model, decoder_layers(model)[1], batch)
    for example, wanted in zip(examples, found.split([4, 2]), strict=True):
        ids = torch.tensor([example.ids[:-1]])
        states = model(ids, output_hidden_states=True).hidden_states[2][0]
        torch.testing.assert_close(wanted, states, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "architecture", "settings", "words"),
    [
        ("rmu", "llama", {"layer": 7}, "layers 0 to 2"),
        ("rmu", "gpt2", {"layer": 1}, "mlp.down_proj.*layer 0 of GPT2LMHeadModel has only"),
        ("rmu", "mixtral", {"layer": 1}, "mlp.down_proj"),
        ("rmu", "llama", {"layer": 1, "trained_layers": (2,)}, "after the steered layer"),
        ("asu", "llama", {"smoothed_layers": (9,)}, "layer 9"),
    ],
)
def test_a_model_that_a_method_cannot_work_on_is_refused_with_the_reason(
    name, architecture, settings, words
):
    model = tiny.make_model(architecture)
    with pytest.raises(InputError, match=words):
        make(name, "full", model, **settings).forget(STREAM[0])


def test_asu_refuses_a_model_without_attention_scaling():
    model = tiny.make_trained_model()
    for layer in model.model.layers:
        layer.self_attn.scaling = torch.tensor(layer.self_attn.scaling)
    with pytest.raises(InputError, match="no attention with a scaling factor"):
        make("asu", "full", model).forget(STREAM[0])


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_smoothing_divides_the_scores_whatever_kernel_runs(implementation):
    from tfrnet.methods.asu.attention import smoothed_attention

    model = tiny.make_trained_model()
    model.set_attn_implementation(implementation)
    with torch.no_grad():
        plain = model(PROBE).logits
        with smoothed_attention(model, 2.3):
            smoothed = model(PROBE).logits
        again = model(PROBE).logits
        # The same by hand: queries scaled instead of scores.
        for layer in model.model.layers:
            layer.self_attn.q_proj.weight.div_(2.3)
        by_hand = model(PROBE).logits
    assert torch.equal(plain, again)
    assert not torch.allclose(plain, smoothed, atol=1e-3)
    torch.testing.assert_close(smoothed, by_hand, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("temperature", "weights", "output"),
    [
        (1.0, (0.218702, 0.763346, 0.017952), (0.236654, 0.781298)),
        (2.0, (0.316982, 0.592201, 0.090817), (0.407799, 0.683018)),
        (2.3, (0.326880, 0.562883, 0.110237), (0.437117, 0.673120)),
    ],
)
def test_smoothed_attention_has_the_weights_worked_out_by_hand(temperature, weights, output):
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.models.llama.modeling_llama import eager_attention_forward

    from tfrnet.methods.asu.attention import smoothed_attention

    sizes = {"vocab_size": 8, "hidden_size": 4, "intermediate_size": 4, "num_hidden_layers": 1}
    model = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=1)).eval()
    attention = model.model.layers[0].self_attn
    query = torch.tensor([[[[1.0, 2.0, -1.0, 0.5]]]])
    keys = torch.tensor([[[[1.0, 1, 0, 0], [0, 2, -1, 1], [-1, 0, 1, 0]]]])
    values = torch.tensor([[[[1.0, 0], [0, 1], [1, 1]]]])
    with smoothed_attention(model, temperature):
        found, shares = eager_attention_forward(
            attention, query, keys, values, None, scaling=attention.scaling
        )
    torch.testing.assert_close(shares.flatten(), torch.tensor(weights), rtol=0, atol=1e-5)
    torch.testing.assert_close(found.flatten(), torch.tensor(output), rtol=0, atol=1e-5)


@pytest.mark.parametrize("architecture", ["gpt2", "gpt_neox", "qwen3", "gemma3", "phi3"])
def test_gradient_methods_work_on_other_architectures(architecture):
    for name in ("ga", "asu"):
        model = tiny.make_model(architecture)
        outcome = make(name, "full", model, steps=1).forget(STREAM[0])
        assert outcome.accepted
        assert math.isfinite(outcome.forget_loss_after)


# Names and settings


def test_every_method_says_what_it_is_and_unknown_ones_are_refused():
    assert method_names()[0] == "tfr"
    wanted = {"tfr", "ga", "rmu", "simnpo", "llm-eraser", "o3", "asu", "graddiff", "npo"}
    assert set(method_names()) >= wanted
    for name in method_names():
        method = find_method(name)
        assert method.method == name
        assert method.label
        assert method.config_class.about
        assert "use_guard" in method.config_class().to_dict()
    with pytest.raises(InputError, match=r"unknown method 'nope'.*asu"):
        find_method("nope")


@pytest.mark.parametrize("name", TRAINED)
def test_a_seed_decides_everything(name):
    digests = []
    for seed in (0, 0, 1):
        unlearner = make(name, "lora", seed=seed, steps=1)
        unlearner.forget(STREAM[0])
        digests.append(unlearner.snapshot().digest())
    assert digests[0] == digests[1] != digests[2]
