"""Attacks on states of methods that train: on what an export ships, and nothing is left behind."""

from __future__ import annotations

import pytest
import torch

from tests import tiny
from tests.datasets import made_up_folder
from tests.evaluation.reference import trained_on
from tests.exports import export_as
from tfrnet.core.errors import InputError
from tfrnet.data.protocol import Sizes, make_split
from tfrnet.data.requests import Request
from tfrnet.data.sources import Source
from tfrnet.evaluation.attacking.subject import AttackOptions, Subject
from tfrnet.evaluation.attacking.weights import folded
from tfrnet.evaluation.cache import Cache
from tfrnet.evaluation.evaluator import Evaluator
from tfrnet.evaluation.plan import Options, Plan
from tfrnet.evaluation.robustness import attack_names, run_attacks
from tfrnet.evaluation.suite import measure
from tfrnet.masking.digest import model_digest
from tfrnet.method import find_method
from tfrnet.methods.llm_eraser.pruning import PrunedEffect
from tfrnet.models.load import LoadedModel

SIZES = Sizes(requests=4, request_size=2, forget_eval=6, heldout=9, retain=(4, 4), guard=(2, 2))
OPTIONS = AttackOptions(relearn_steps=(0, 2), relearn_seeds=1)
PROBE = torch.tensor([[5, 6, 7, 8, 9, 40, 41]])
# The last one prunes a projection that has no adapter around it.
VARIANTS = {
    "ga, weights": ("ga", {"trained": "full", "learning_rate": 3e-3}),
    "ga, adapter": ("ga", {"trained": "lora", "learning_rate": 3e-3}),
    "rmu": ("rmu", {"trained": "full", "learning_rate": 3e-3, "layer": 1}),
    "llm-eraser": ("llm-eraser", {"learning_rate": 0.1}),
    "llm-eraser, attention": (
        "llm-eraser",
        {"learning_rate": 0.1, "target_modules": ["q_proj", "v_proj"]},
    ),
}
NAMES = ("quantise", "prompts", "few-shot", "insist", "relearn")


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    source = Source("folder", made_up_folder(tmp_path_factory.mktemp("data")))
    return make_split("openbookqa", 2, source, SIZES)


def forgetful(variant, split, tokenizer):
    """Return a method at work on a model that knew the items and was asked to forget some."""
    name, settings = VARIANTS.get(variant, (variant, {}))
    method = find_method(name)
    values = {"guard_examples": 2, "steps": 3} | settings
    if method.config_class.from_dict(values).trained == "lora":
        values["lora_factor"] = 1.0
    model = trained_on([item.example().joined for item in split.forget], 45)
    retain = [item.example() for item in split.heldout["openbookqa"]]
    net = method(model, tokenizer, retain, method.config_class.from_dict(values))
    request = Request("some", tuple(item.example() for item in split.forget[2:]))
    assert net.forget(request).accepted
    return net


def lifted(effect):
    return effect.lifted()


@torch.no_grad()
def logits(model):
    return model(PROBE).logits.clone()


def snapshot(model):
    """Return all that an attack must leave alone."""
    weights = {
        name: (p, p.data_ptr(), p.requires_grad, p.grad, p.detach().clone())
        for name, p in model.named_parameters()
    }
    modules = {
        name: (m, m.training, set(vars(m)), list(m._forward_pre_hooks.items()))
        for name, m in model.named_modules()
    }
    return weights, modules, logits(model)


def assert_unharmed(model, before):
    weights, modules, outputs = snapshot(model)
    assert modules == before[1]
    assert list(weights) == list(before[0])
    for name, (*facts, values) in before[0].items():
        *found, now = weights[name]
        # `is` for tensors, which do not compare to one truth value.
        assert all(a is b or a == b for a, b in zip(found, facts, strict=True)), name
        assert torch.equal(now, values), name
    assert torch.equal(outputs, before[2])


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_attacker_meets_what_an_export_ships(variant, split, tokenizer, tmp_path):
    net = forgetful(variant, split, tokenizer)
    base = trained_on([item.example().joined for item in split.forget], 45)
    export_as("dense", net.effect, tokenizer, tmp_path / "out")
    exported = type(base).from_pretrained(tmp_path / "out").eval()
    before = snapshot(net.model)
    for state, expected in ((folded, exported), (lifted, base)):
        with state(net.effect):
            found = dict(net.model.named_parameters())
            assert found.keys() == dict(expected.named_parameters()).keys()
            for name, parameter in expected.named_parameters():
                assert torch.equal(found[name], parameter), name
            # Only an ordinary model has a digest: no wrapper, hook or other `forward` is left.
            assert model_digest(net.model) is not None
            assert torch.equal(logits(net.model), logits(expected))
        assert_unharmed(net.model, before)
    assert not torch.equal(before[2], logits(base))


# A single projection that rmu trains makes so small a model forget nothing.
@pytest.mark.parametrize(
    "variant",
    [
        pytest.param(variant, marks=() if variant == "ga, weights" else pytest.mark.slow)
        for variant in VARIANTS
        if variant != "rmu"
    ],
)
def test_every_attack_that_fits_runs_and_leaves_nothing_behind(variant, split, tokenizer, tmp_path):
    net = forgetful(variant, split, tokenizer)
    before = snapshot(net.model)
    evaluator = Evaluator(LoadedModel(net.model, tokenizer), cache=Cache(tmp_path))
    subject = Subject(evaluator, net.effect, split, OPTIONS)
    assert subject.plain == subject.accuracy(subject.hidden)  # of the live model
    assert subject.plain < subject.original
    assert attack_names(net.effect) == NAMES
    rows = run_attacks(subject, NAMES)
    assert_unharmed(net.model, before)
    assert list(dict.fromkeys(row.attack for row in rows)) == list(NAMES)
    found = {row.variant: row for row in rows}
    for name in ("original", "forgotten, 0 steps"):
        assert found[name].attacked == subject.plain
        assert found[name].untouched_attacked == subject.original
    assert found["int8-row"].untouched_attacked == pytest.approx(subject.original, abs=25)
    assert all(row.untouched_attacked is not None for row in rows)


@pytest.mark.parametrize("variant", ["ga, weights", "ga, adapter", "llm-eraser, attention"])
@pytest.mark.parametrize("state", [folded, lifted])
def test_everything_comes_back_after_an_exception(variant, state, split, tokenizer):
    net = forgetful(variant, split, tokenizer)
    before = snapshot(net.model)
    with pytest.raises(KeyError), state(net.effect):
        raise KeyError
    assert_unharmed(net.model, before)


def test_a_pruned_channel_can_be_trained_again_by_an_attacker(split, tokenizer):
    """An export has zeros and no guard over them, so the attacked model must not have one."""
    net = forgetful("llm-eraser, attention", split, tokenizer)
    assert isinstance(net.effect, PrunedEffect)
    (down, pruned), *_ = net.effect._pruned.items()
    weight = net.effect.base_weight(down)
    with folded(net.effect):
        assert not weight[:, pruned].any()
        before = logits(net.model)
        weight.data[:, pruned] = 1.0
        assert not torch.equal(logits(net.model), before)


@pytest.mark.parametrize("name", ["unmask", "rescale"])
def test_attacks_on_a_mask_are_refused_where_there_is_none(name, split, tokenizer):
    net = forgetful("ga, weights", split, tokenizer)
    subject = Subject(Evaluator(LoadedModel(net.model, tokenizer)), net.effect, split, OPTIONS)
    message = (
        f"attack {name} needs a mask, .* choose from quantise, prompts, few-shot, insist, relearn"
    )
    with pytest.raises(InputError, match=message):
        run_attacks(subject, ["prompts", name])


def test_what_depends_on_the_prompt_is_refused_before_any_work(split, tokenizer, monkeypatch):
    net = forgetful("o3", split, tokenizer)
    before = snapshot(net.model)
    evaluator = Evaluator(LoadedModel(net.model, tokenizer))
    reason = "cannot be folded into weights: the adapter's weight depends on the prompt"
    with pytest.raises(InputError, match=reason):
        Subject(evaluator, net.effect, split, OPTIONS)
    assert_unharmed(net.model, before)
    monkeypatch.setattr("tfrnet.evaluation.suite.measure_reference", None)
    plan = Plan(Options(tasks=("robustness",), attacks=NAMES), [], {}, None, split)
    with pytest.raises(InputError, match=reason):
        measure(evaluator, plan, net.effect, lambda stage: None)


def test_a_gated_adapter_can_be_lifted_too(split, tokenizer):
    net = forgetful("o3", split, tokenizer)
    before = snapshot(net.model)
    base = trained_on([item.example().joined for item in split.forget], 45)
    with net.effect.lifted():
        assert torch.equal(logits(net.model), logits(base))
    assert_unharmed(net.model, before)


def test_a_weight_that_another_shares_is_refused(tokenizer):
    model = tiny.make_model()
    model.lm_head.weight = model.model.embed_tokens.weight
    method = find_method("ga")
    config = method.config_class.from_dict({"trained": "lora", "target_modules": ["lm_head"]})
    with (
        method.attach(model, config) as effect,
        pytest.raises(InputError, match="shares its values"),
        folded(effect),
    ):
        pass
