"""Channel scores against the paper's double sum, written out, and against finite differences."""

import math
from copy import deepcopy

import accelerate
import pytest
import torch
from torch import nn

from tests import tiny
from tfrnet.core.errors import InputError
from tfrnet.data.examples import Encoded
from tfrnet.masking.channels import find_channels
from tfrnet.masking.mask import ChannelMask
from tfrnet.methods.tfr.scoring import (
    ScoreOptions,
    ScoreSet,
    gradients_of,
    score_channels,
    score_sets,
)

pytestmark = pytest.mark.filterwarnings("ignore::tfrnet.core.errors.TfrnetWarning")
MASK_VALUES = (1.0, 0.5, 0.05, 0.005, 0.0)


@pytest.fixture
def float64_inside(monkeypatch):
    """Norms, rotary angles and routers compute in float32 in a model of any dtype; here not."""
    monkeypatch.setattr(torch, "float32", torch.float64)
    monkeypatch.setattr(torch, "float", torch.float64)
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)


def float64_model(architecture):
    model = tiny.make_model(architecture).double()
    # The default implementation of experts has no float64.
    model.set_experts_implementation("eager")
    return model


def make_examples(count, seed=0):
    """Return token sequences of different lengths and answers of different lengths."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for number in range(count):
        length = 6 + 3 * number % 11
        ids = torch.randint(1, tiny.VOCABULARY, (length,), generator=generator)
        made.append(Encoded(tuple(ids.tolist()), length - 1 - number % 4))
    return made


def channels(model):
    return find_channels(model)


def mixed_mask(total, dtype=torch.float64):
    values = torch.tensor(MASK_VALUES, dtype=dtype)
    return values[torch.randint(len(values), (total,), generator=torch.Generator().manual_seed(5))]


def score(model, examples, values, **options):
    with ChannelMask(model, channels(model)) as mask:
        mask.set(values)
        return score_channels(mask, examples, ScoreOptions(**options))


def plain_loss(model, example):
    log_p = model(torch.tensor([example.ids])).logits[0].log_softmax(-1)
    answer = range(example.answer_start, len(example.ids))
    return -sum(log_p[i - 1, example.ids[i]] for i in answer) / len(answer)


class ByHand:
    """A copy of a model with h = m * a at every channel, that keeps a and h of the last pass."""

    def __init__(self, model):
        self.model = deepcopy(model).eval()
        self.parts = [(p.name, p.width) for p in channels(model)]
        self.kept = {}
        for name, _ in self.parts:
            self.model.get_submodule(name).register_forward_hook(self._scale(name))

    def _scale(self, name):
        def scale(module, inputs, a):
            h = a * self.mask[name].to(a.dtype)
            if h.requires_grad:
                h.retain_grad()
            self.kept.setdefault(name, []).append((a, h))
            return h

        return scale

    def loss(self, example, values):
        widths = [width for _, width in self.parts]
        named = zip(self.parts, values.split(widths), strict=True)
        self.mask = {name: part for (name, _), part in named}
        self.kept = {}
        return plain_loss(self.model, example)

    def token_sum(self, example, values, tokens=None):
        """Return the sum over tokens i of a_i * dL/dh_i, one token after another."""
        self.loss(example, values).backward()
        sums = []
        for name, width in self.parts:
            total = torch.zeros(width, dtype=torch.float64)
            for a, h in self.kept.get(name, []):
                a, gradient = a.reshape(-1, width), h.grad.reshape(-1, width)
                for token in range(len(a)) if tokens is None else tokens:
                    total += a[token].detach() * gradient[token]
            sums.append(total)
        return torch.cat(sums)


def close(found, expected, tolerance):
    assert (found - expected).abs().max() <= tolerance * expected.abs().max()


@pytest.mark.usefixtures("float64_inside")
@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
@pytest.mark.parametrize("tokens", ["all", "answer"])
def test_scores_are_the_papers_double_sum_over_tokens(architecture, tokens):
    model = float64_model(architecture)
    examples = make_examples(4)
    values = mixed_mask(channels(model).total)
    by_hand = ByHand(model)
    sums, counts = [], []
    for example in examples:
        # The token at position i - 1 predicts the answer token at position i.
        predicting = range(example.answer_start - 1, len(example.ids) - 1)
        counted = range(len(example.ids)) if tokens == "all" else predicting
        sums.append(by_hand.token_sum(example, values, counted))
        counts.append(len(counted))
    gradients, counts = torch.stack(sums), torch.tensor(counts).unsqueeze(1)
    scores = score(model, examples, values, batch_size=3, tokens=tokens)
    assert scores.magnitude.dtype == torch.float64
    close(scores.magnitude, (gradients / counts).abs().mean(0), 1e-10)
    close(scores.signed, (gradients / counts).mean(0), 1e-10)
    close(scores.gradient, gradients.mean(0), 1e-10)
    close(scores.square, gradients.square().mean(0), 1e-10)
    losses = [float(by_hand.loss(example, values)) for example in examples]
    assert scores.loss == pytest.approx(sum(losses) / 4, rel=1e-12)
    assert scores.lowest_loss == pytest.approx(min(losses), rel=1e-12)


@pytest.mark.usefixtures("float64_inside")
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gpt2", "gemma3", "qwen2_moe"])
def test_scores_are_finite_differences_of_the_loss_in_the_mask(architecture):
    model = float64_model(architecture)
    (example,) = make_examples(1)
    values = mixed_mask(channels(model).total)
    by_hand = ByHand(model)
    scores = score(model, [example], values)
    step = 1e-5
    generator = torch.Generator().manual_seed(1)
    for value in MASK_VALUES:
        alike = (values == value).nonzero().flatten()
        for channel in alike[torch.randperm(len(alike), generator=generator)[:3]].tolist():
            nudge = torch.zeros_like(values)
            nudge[channel] = step
            with torch.no_grad():
                rise = by_hand.loss(example, values + nudge) - by_hand.loss(example, values - nudge)
            slope = float(rise) / (2 * step)
            largest = float(scores.gradient.abs().max())
            assert float(scores.gradient[channel]) == pytest.approx(slope, abs=1e-7 * largest)
            psi = abs(slope) / len(example.ids)
            assert float(scores.magnitude[channel]) == pytest.approx(psi, abs=1e-7 * largest)


def test_examples_over_the_ceiling_count_nothing_in_the_gradient_alone():
    model = tiny.make_model("llama")
    examples = make_examples(5)
    values = mixed_mask(channels(model).total, torch.float32)
    single = [score(model, [example], values) for example in examples]
    ceiling = sum(sorted(one.loss for one in single)[2:4]) / 2
    with ChannelMask(model, channels(model)) as mask:
        mask.set(values)
        scores = score_channels(mask, examples, ScoreOptions(batch_size=2), ceiling)
    below = [one for one in single if one.loss < ceiling]
    assert len(below) == 3
    close(scores.gradient, sum(one.gradient for one in below) / 5, 1e-5)
    for field in ("magnitude", "signed", "square"):
        close(getattr(scores, field), sum(getattr(one, field) for one in single) / 5, 1e-5)


@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
def test_batch_size_padding_and_checkpointing_do_not_change_scores(architecture):
    model = tiny.make_model(architecture)
    examples = make_examples(9)
    values = mixed_mask(channels(model).total, torch.float32)
    one_by_one = score(model, examples, values, batch_size=1)
    for options in (
        {"batch_size": 8},
        {"batch_size": 8, "padding_side": "left"},
        {"batch_size": 3, "gradient_checkpointing": True},
    ):
        other = score(model, examples, values, **options)
        for field in ("magnitude", "signed", "gradient", "square"):
            close(getattr(other, field), getattr(one_by_one, field), 1e-5)
        assert other.loss == pytest.approx(one_by_one.loss, rel=1e-5)


def test_sets_that_share_passes_are_scored_apart(float64_inside):
    """As if each went alone, though both are in the same passes, and these are fewer."""
    model, examples = float64_model("llama"), make_examples(7)
    first, second = examples[:3], examples[3:]
    values = mixed_mask(channels(model).total)
    ceiling = sorted(float(plain_loss(model, e)) for e in first)[1]
    passes = []
    model.register_forward_pre_hook(lambda *_: passes.append(1))
    with ChannelMask(model, channels(model)) as mask:
        mask.set(values)
        options = ScoreOptions(batch_size=4)
        alone = [
            score_channels(mask, first, options, ceiling),
            score_channels(mask, second, options, keep_examples=True),
        ]
        passes.clear()
        sets = [ScoreSet(first, ceiling), ScoreSet(second, keep_examples=True)]
        together = score_sets(mask, sets, ScoreOptions(batch_size=8))
        assert len(passes) == 1
        each = gradients_of(mask, second, options)
    for found, expected in zip(together, alone, strict=True):
        for name in ("magnitude", "signed", "gradient", "square"):
            close(getattr(found, name), getattr(expected, name), 1e-10)
        assert found.loss == pytest.approx(expected.loss, rel=1e-12)
        assert found.lowest_loss == pytest.approx(expected.lowest_loss, rel=1e-12)
    assert together[0].examples is None
    close(together[1].examples.gradients, each.gradients, 1e-10)
    assert together[1].examples.values.tolist() == pytest.approx(each.values.tolist())


@pytest.mark.parametrize("padding_side", ["left", "right"])
def test_answer_scores_do_not_depend_on_the_batch_either(padding_side):
    model = tiny.make_model("qwen2_moe")
    examples = make_examples(8)
    values = mixed_mask(channels(model).total, torch.float32)
    one_by_one = score(model, examples, values, batch_size=1, tokens="answer")
    together = score(model, examples, values, tokens="answer", padding_side=padding_side)
    close(together.magnitude, one_by_one.magnitude, 1e-5)
    everywhere = score(model, examples, values)
    assert (
        together.magnitude - everywhere.magnitude
    ).abs().max() > 0.1 * everywhere.magnitude.max()


@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
def test_dormant_channels_keep_informative_scores(architecture):
    model = tiny.make_model(architecture)
    # Far apart: a zero in both factors of a product (gate and up) would rightly have no gradient.
    values = torch.ones(channels(model).total)
    values[::29] = 0
    scores = score(model, make_examples(4), values).magnitude
    assert (scores[values == 0] > 0).all()
    assert scores[values == 0].median() > 0.2 * scores[values == 1].median()


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("kwargs", [None, {"use_reentrant": True}, {"use_reentrant": False}])
def test_checkpointing_enabled_by_the_user_changes_nothing_and_stays(kwargs, asked):
    model = tiny.make_model("llama")
    examples = make_examples(3)
    values = mixed_mask(channels(model).total, torch.float32)
    plain = score(model, examples, values)
    model.gradient_checkpointing_enable(kwargs)
    model.train()
    scores = score(model, examples, values, gradient_checkpointing=asked)
    close(scores.magnitude, plain.magnitude, 1e-5)
    assert model.is_gradient_checkpointing
    assert all(module.training for module in model.modules())


@pytest.mark.parametrize(("asked", "passes"), [(False, 1), (True, 2)])
def test_checkpointing_computes_each_layer_twice_and_is_off_again_afterwards(asked, passes):
    model = tiny.make_model("llama")
    calls = []
    model.model.layers[1].mlp.register_forward_pre_hook(lambda *_: calls.append(1))
    values = mixed_mask(channels(model).total, torch.float32)
    score(model, make_examples(2), values, gradient_checkpointing=asked)
    assert len(calls) == passes
    assert not model.is_gradient_checkpointing


def condition(model):
    return {
        "requires_grad": {n: p.requires_grad for n, p in model.named_parameters()},
        "grad": [n for n, p in model.named_parameters() if p.grad is not None],
        "training": {name: module.training for name, module in model.named_modules()},
        "hooks": {
            name: list(module._forward_hooks.values()) + list(module._forward_pre_hooks.values())
            for name, module in model.named_modules()
        },
    }


def in_the_users_condition():
    model = tiny.make_model("llama").train()
    model.model.layers[1].eval()
    model.model.embed_tokens.weight.requires_grad_(False)
    return model


@pytest.mark.parametrize("checkpointing", [True, False])
def test_scoring_leaves_no_gradient_and_no_changed_flag(checkpointing):
    model = in_the_users_condition()
    before = condition(model)
    values = mixed_mask(channels(model).total, torch.float32)
    score(model, make_examples(3), values, gradient_checkpointing=checkpointing)
    assert before["grad"] == []
    assert condition(model) == before


@pytest.mark.parametrize("checkpointing", [True, False])
def test_a_model_that_raises_is_put_back_and_still_masked(checkpointing, monkeypatch):
    model = in_the_users_condition()
    before = condition(model)
    ids = torch.tensor([[1, 2, 3]])
    with ChannelMask(model, channels(model)) as mask:
        mask.set(mixed_mask(mask.index.total, torch.float32))
        expected = model(ids).logits
        with monkeypatch.context() as broken:
            broken.setattr(model.model.norm, "forward", lambda hidden: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                options = ScoreOptions(gradient_checkpointing=checkpointing)
                score_channels(mask, make_examples(3), options)
        assert torch.equal(model(ids).logits, expected)
    assert condition(model) == before
    assert not model.is_gradient_checkpointing


@pytest.mark.parametrize("checkpointing", [True, False])
def test_dropout_is_off_while_scoring(checkpointing):
    model = tiny.make_model("gpt2")
    examples = make_examples(3)
    values = mixed_mask(channels(model).total, torch.float32)
    expected = score(model, examples, values, gradient_checkpointing=checkpointing)
    dropouts = [module for module in model.modules() if isinstance(module, nn.Dropout)]
    for module in dropouts:
        module.p = 0.5
    assert len(dropouts) > 6
    model.train()
    for _ in range(2):
        scores = score(model, examples, values, gradient_checkpointing=checkpointing)
        assert torch.equal(scores.magnitude, expected.magnitude)
        assert scores.loss == expected.loss


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gpt2", "gemma3", "phi3"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_scores_are_close_to_float32_ones(architecture, dtype):
    # One rounded model in both precisions, so that only the arithmetic differs.
    half = tiny.make_model(architecture, dtype)
    wide = deepcopy(half).to(torch.float32)
    examples = make_examples(6)
    values = mixed_mask(channels(wide).total, torch.float32)
    expected = score(wide, examples, values).magnitude
    found = score(half, examples, values).magnitude
    by_hand = ByHand(half)
    sums = [by_hand.token_sum(example, values) / len(example.ids) for example in examples]
    literal = torch.stack(sums).abs().mean(0)
    # The model's own rounding is the same for both; the way to the scores may add one rounding.
    allowed = 1.5 * (literal - expected).norm() + torch.finfo(dtype).eps * expected.norm()
    assert found.dtype == torch.float32
    assert (found - expected).norm() < allowed
    assert torch.corrcoef(torch.stack([found, expected]))[0, 1] > 0.999


def test_float16_scores_of_small_gradients_do_not_vanish():
    half = tiny.make_model("llama", torch.float16)
    with torch.no_grad():
        half.lm_head.weight *= 2e-4
    wide = deepcopy(half).to(torch.float32)
    examples = make_examples(4)
    values = torch.ones(channels(wide).total)
    expected = score(wide, examples, values).magnitude
    found = score(half, examples, values).magnitude
    assert expected.median() < torch.finfo(torch.float16).tiny
    assert (found - expected).norm() < 4 * torch.finfo(torch.float16).eps * expected.norm()


@pytest.mark.parametrize(("architecture", "factor"), [("gemma3", 16), ("llama", 64)])
def test_float16_scores_of_large_gradients_do_not_overflow(architecture, factor):
    half = tiny.make_model(architecture, torch.float16)
    with torch.no_grad():
        half.model.norm.weight *= factor
    wide = deepcopy(half).to(torch.float32)
    examples = make_examples(8)
    values = mixed_mask(channels(wide).total, torch.float32)
    expected = score(wide, examples, values).magnitude
    found = score(half, examples, values).magnitude
    assert torch.corrcoef(torch.stack([found, expected]))[0, 1] > 0.999


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("batch_size", [1, 8])
def test_a_weight_that_is_not_finite_shows_in_the_loss(bad, batch_size):
    model = tiny.make_model("llama")
    examples = make_examples(4)
    only_in_one = set(examples[2].ids) - {i for e in examples if e != examples[2] for i in e.ids}
    with torch.no_grad():
        model.model.embed_tokens.weight[only_in_one.pop()] = bad
    values = mixed_mask(channels(model).total, torch.float32)
    assert not math.isfinite(score(model, examples, values, batch_size=batch_size).loss)


class RoutedExperts(nn.Module):
    """A mixture whose experts are modules, each called on the tokens routed to it."""

    def __init__(self, mlp, experts):
        super().__init__()
        torch.manual_seed(3)
        self.router = nn.Linear(mlp.hidden_size, experts)
        self.experts = nn.ModuleList(deepcopy(mlp) for _ in range(experts))
        for parameter in self.experts.parameters():
            nn.init.normal_(parameter, std=0.15)

    def forward(self, hidden):
        flat = hidden.reshape(-1, hidden.shape[-1])
        weights, chosen = self.router(flat).softmax(-1).topk(2)
        result = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            # Ordered by slot, then token, as in the mixtures of transformers 4.
            slot, token = torch.where((chosen == number).T)
            scaled = expert(flat[token]) * weights[token, slot].unsqueeze(1)
            result = result.index_add(0, token, scaled)
        return result.view_as(hidden)


def routed_model(experts):
    model = tiny.make_model("llama")
    model.model.layers[1].mlp = RoutedExperts(model.model.layers[1].mlp, experts)
    return model.eval()


@pytest.mark.slow
@pytest.mark.parametrize("experts", [2, 4])
def test_experts_that_see_tokens_out_of_their_batch_are_scored_right(experts):
    model = routed_model(experts)
    examples = make_examples(6)
    values = mixed_mask(channels(model).total, torch.float32)
    by_hand = ByHand(model)
    sums = [by_hand.token_sum(example, values) / len(example.ids) for example in examples]
    scores = score(model, examples, values, batch_size=4)
    close(scores.magnitude.double(), torch.stack(sums).abs().mean(0), 1e-5)


@pytest.mark.parametrize("experts", [2, 4])
def test_answer_scores_are_refused_where_tokens_cannot_be_told_apart(experts):
    model = routed_model(experts)
    values = mixed_mask(channels(model).total, torch.float32)
    with pytest.raises(InputError, match="scored"):
        score(model, make_examples(3), values, tokens="answer")


@pytest.mark.parametrize("offload", [accelerate.cpu_offload, accelerate.dispatch_model])
def test_scores_of_a_model_that_accelerate_has_placed(offload):
    model = tiny.make_model("qwen2")
    examples = make_examples(3)
    values = mixed_mask(channels(model).total, torch.float32)
    expected = score(model, examples, values)
    if offload is accelerate.cpu_offload:
        placed = offload(model, execution_device="cpu")
    else:
        placed = offload(model, {"": "cpu"}, force_hooks=True)
    close(score(placed, examples, values).magnitude, expected.magnitude, 1e-5)


def test_checkpointing_does_not_switch_on_dropout():
    """OPT's layers apply dropout themselves, by their own training flag."""
    from transformers import OPTConfig, OPTForCausalLM

    config = OPTConfig(
        vocab_size=tiny.VOCABULARY,
        hidden_size=32,
        ffn_dim=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        word_embed_proj_dim=32,
        dropout=0.5,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    model = OPTForCausalLM(config).eval()
    values = torch.ones(channels(model).total)
    plain = score(model, make_examples(3), values)
    checkpointed = score(model, make_examples(3), values, gradient_checkpointing=True)
    torch.testing.assert_close(checkpointed.magnitude, plain.magnitude, rtol=1e-4, atol=1e-9)
