from itertools import islice

import pytest
import torch

from tests import tiny
from tfrnet.core.errors import InputError
from tfrnet.data.examples import encode_all
from tfrnet.evaluation.attacking.relearning import RelearnOptions, _shuffled, relearn
from tfrnet.evaluation.attacking.weights import folded
from tfrnet.masking.channels import find_channels
from tfrnet.masking.mask import ChannelMask
from tfrnet.models.forward import evaluate_losses
from tfrnet.models.lora import ADAPTER

ENCODED = encode_all(tiny.examples(6), tiny.make_tokenizer(), 64, "test")
LORA = RelearnOptions(learning_rate=3e-2, batch_size=4, steps=(0, 1, 4))
FULL = RelearnOptions(learning_rate=3e-3, batch_size=4, steps=(0, 1, 4), full=True)
BOTH = pytest.mark.parametrize("options", [LORA, FULL], ids=["lora", "full"])


def loss(model):
    return evaluate_losses(model, ENCODED, 8).double().mean().item()


def run(model, options, examples=ENCODED):
    return relearn(model, examples, options, lambda: loss(model))


def changed(options, **values):
    return RelearnOptions(**{**vars(options), **values})


def snapshot(model):
    """Return all that relearning must leave alone."""
    parameters = {
        name: (p, p.data_ptr(), p.dtype, p.requires_grad, p.grad, p.detach().clone())
        for name, p in model.named_parameters()
    }
    modules = {name: (m, m.training, set(vars(m))) for name, m in model.named_modules()}
    return parameters, modules


def assert_untouched(model, before):
    parameters, modules = snapshot(model)
    assert modules == before[1]
    assert parameters.keys() == before[0].keys()
    for name, (*facts, values) in before[0].items():
        *found, now = parameters[name]
        # `is` for tensors, which do not compare to one truth value.
        assert all(a is b or a == b for a, b in zip(found, facts, strict=True)), name
        assert torch.equal(now, values), name


@BOTH
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gpt2"])
def test_the_loss_falls_from_where_it_was_and_the_model_is_left_alone(architecture, options):
    model = tiny.make_model(architecture)
    before, start = snapshot(model), loss(model)
    curve = run(model, options)
    assert [step for step, _ in curve] == [0, 1, 4]
    losses = [value for _, value in curve]
    assert losses[0] == start
    assert losses[0] > losses[1] > losses[2]
    assert losses[2] < 0.99 * start
    assert_untouched(model, before)
    assert loss(model) == start


@BOTH
def test_a_curve_depends_on_nothing_but_the_seed(options):
    model = tiny.make_model()
    torch.manual_seed(1)
    first = run(model, options)
    torch.manual_seed(2)
    state = torch.get_rng_state()
    assert run(model, options) == first
    assert torch.equal(torch.get_rng_state(), state)
    assert run(model, changed(options, seed=1)) != first


def test_the_seed_also_decides_where_lora_starts():
    model = tiny.make_model()

    def start(seed):
        def measure():
            return model.model.layers[0].self_attn.q_proj.lora_A[ADAPTER].weight.tolist()

        return relearn(model, ENCODED, changed(LORA, seed=seed, steps=(0,)), measure)

    assert start(0) == start(0) != start(1)


@BOTH
def test_dropout_is_off_and_modes_and_gradients_come_back(options):
    model = tiny.make_model("gpt2")
    expected = run(model, options)
    model.train()
    model.transformer.h[1].eval()
    frozen, used = model.transformer.wte.weight, model.transformer.h[0].attn.c_attn.weight
    frozen.requires_grad_(False)
    used.grad = torch.ones_like(used)
    before = snapshot(model)
    modes = []
    relearn(model, ENCODED, options, lambda: modes.append({m.training for m in model.modules()}))
    assert modes == [{False}] * 3
    assert_untouched(model, before)
    assert run(model, options) == expected


@BOTH
@pytest.mark.parametrize("step", [0, 1])
def test_the_model_is_left_alone_after_an_exception(options, step):
    model = tiny.make_model()
    before = snapshot(model)
    calls = iter(range(3))

    def fail():
        if LORA.steps[next(calls)] == step:
            raise KeyError

    with pytest.raises(KeyError):
        relearn(model, ENCODED, options, fail)
    assert_untouched(model, before)


@BOTH
def test_it_trains_also_where_gradients_are_off(options):
    model = tiny.make_model()
    with torch.no_grad():
        curve = run(model, options)
    assert curve[-1][1] < curve[0][1]


@BOTH
def test_a_bfloat16_model_relearns_too(options):
    model = tiny.make_model(dtype=torch.bfloat16)
    before = snapshot(model)
    curve = run(model, changed(options, learning_rate=options.learning_rate / 3))
    assert curve[-1][1] < 0.99 * curve[0][1]
    assert_untouched(model, before)


def test_small_steps_are_not_rounded_away_in_bfloat16():
    model = tiny.make_model(dtype=torch.bfloat16)
    curve = run(model, changed(FULL, learning_rate=1e-6, steps=(0, 3)))
    assert curve[-1][1] < curve[0][1]


def trained_parts(model, options):
    return relearn(
        model,
        ENCODED,
        changed(options, steps=(1,)),
        lambda: {
            name.split(".lora_")[0].rpartition(".")[2]
            for name, parameter in model.named_parameters()
            if parameter.requires_grad
        },
    )[0][1]


@pytest.mark.parametrize(
    ("architecture", "targets", "expected"),
    [
        ("llama", ("q_proj", "v_proj"), {"q_proj", "v_proj"}),
        ("llama", ("o_proj",), {"o_proj"}),
        ("gpt2", ("q_proj", "v_proj"), {"c_attn"}),
        ("gpt_neox", ("q_proj", "v_proj"), {"query_key_value"}),
        ("phi3", ("q_proj", "v_proj"), {"qkv_proj", "o_proj", "gate_up_proj", "down_proj"}),
    ],
)
@pytest.mark.filterwarnings("error:fan_in_fan_out")
def test_which_modules_lora_trains(architecture, targets, expected):
    model = tiny.make_model(architecture)
    assert trained_parts(model, changed(LORA, target_modules=targets)) == expected


def test_full_training_trains_everything():
    model = tiny.make_model()
    moved = relearn(
        model,
        ENCODED,
        changed(FULL, steps=(0, 6)),
        lambda: {name: p.detach().clone() for name, p in model.named_parameters()},
    )
    start, end = moved[0][1], moved[1][1]
    assert start.keys() == dict(model.named_parameters()).keys()
    assert all(not torch.equal(start[name], end[name]) for name in start)


def test_full_training_is_adamw_without_decay_on_the_answers_alone():
    model, copy = tiny.make_model(), tiny.make_model()
    optimizer = torch.optim.AdamW(copy.parameters(), lr=3e-3, weight_decay=0)
    expected = [loss(copy)]
    for _ in range(3):
        optimizer.zero_grad()
        for example in ENCODED:
            ids = torch.tensor([example.ids])
            labels = ids.clone()
            labels[:, : example.answer_start] = -100
            (copy(ids, labels=labels).loss / len(ENCODED)).backward()
        optimizer.step()
        expected.append(loss(copy))
    curve = run(model, changed(FULL, batch_size=6, steps=(0, 1, 2, 3)))
    assert [value for _, value in curve] == pytest.approx(expected, rel=1e-5)


def test_lora_has_the_rank_and_the_scale_that_were_asked_for():
    model = tiny.make_model()

    def measure():
        layer = model.model.layers[0].self_attn.q_proj
        return layer.lora_A[ADAPTER].weight.shape[0], layer.scaling[ADAPTER]

    assert relearn(model, ENCODED, changed(LORA, rank=4, alpha=12), measure)[0][1] == (4, 3.0)


def test_the_default_learning_rates():
    assert RelearnOptions().rate == 1e-4
    assert RelearnOptions(full=True).rate == 1e-5
    assert LORA.rate == 3e-2


def test_batches_go_through_shuffle_after_shuffle():
    def numbers(count, size, batches, seed=0):
        options = RelearnOptions(batch_size=size, seed=seed)
        found = list(islice(_shuffled(count, options), batches))
        assert {len(batch) for batch in found} == {min(size, count)}
        return [number for batch in found for number in batch]

    found = numbers(10, 4, 5)
    assert sorted(found[:10]) == sorted(found[10:]) == list(range(10))
    assert found[:10] != found[10:]
    assert numbers(10, 4, 5, seed=1) != found
    assert sorted(numbers(3, 8, 2)) == [0, 0, 1, 1, 2, 2]


def test_a_folded_model_can_be_attacked():
    model = tiny.make_model()
    index = find_channels(model, target_modules="all-linear")
    before = snapshot(model)
    with ChannelMask(model, index) as mask:
        mask.set(torch.linspace(0, 1, index.total))
        masked = loss(model)
        for options in (LORA, FULL):
            with folded(mask):
                curve = run(model, options)
            assert curve[0][1] == pytest.approx(masked, rel=1e-5)
            assert curve[-1][1] < curve[0][1]
        assert loss(model) == masked
    assert_untouched(model, before)


def test_what_cannot_be_used_is_refused():
    with pytest.raises(InputError, match="at least one example"):
        run(tiny.make_model(), LORA, [])
    for steps in [(), (-1, 5), (0, 5, 5), (5, 0)]:
        with pytest.raises(InputError, match="ascending"):
            RelearnOptions(steps=steps)
    with pytest.raises(InputError, match="batch_size"):
        RelearnOptions(batch_size=0)
