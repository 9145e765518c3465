"""A method of one's own: one that does not train works, one that lacks something is refused."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from tests import tiny
from tests.example_package.tfrnet_example.flatten import Flatten
from tests.example_package.tfrnet_example.hush import Hush, HushConfig
from tfrnet import InputError, Session
from tfrnet.core.guarded_settings import GuardedSettings
from tfrnet.core.settings import Settings
from tfrnet.method import find_config, find_method
from tfrnet.unlearner import Unlearner, method_problem

PLACE = "tfrnet.methods.ga.method.METHOD"


def hush(**settings: float) -> Hush:
    config = HushConfig(guard_examples=4, **settings)
    return Hush(tiny.make_trained_model(), tiny.make_tokenizer(), tiny.examples(12), config)


# One that does not train


def test_a_request_turns_channels_down_and_can_be_taken_back():
    unlearner = hush(channels=3, guard_relative=9)
    before = unlearner.snapshot()
    outcome = unlearner.forget(tiny.requests(1)[0])
    assert outcome.accepted
    mask = unlearner.snapshot().tensors()["mask"]
    assert sorted(mask.unique().tolist()) == [0.5, 1.0]
    assert int((mask < 1).sum()) == 3
    assert torch.equal(unlearner.effect.values, mask)
    unlearner.restore(before)
    assert bool((unlearner.effect.values == 1).all())


def test_the_guard_rejects_a_request_that_costs_too_much():
    unlearner = hush(channels=200, strength=1, guard_relative=0)
    outcome = unlearner.forget(tiny.requests(1)[0])
    assert not outcome.accepted
    assert outcome.guard_loss_after > outcome.guard_loss_before
    assert bool((unlearner.effect.values == 1).all())


# What is missing


class Bare(Unlearner):
    method = "ga"


class Unreadable(Hush):
    read_state = Unlearner.read_state


@dataclass(frozen=True)
class Unguarded(Settings):
    pass


@dataclass(frozen=True)
class WithoutThreshold(GuardedSettings):
    has_mask: ClassVar[bool] = True


class OfUnguarded(Hush):
    config_class = Unguarded  # type: ignore[assignment]


class OfWithoutThreshold(Hush):
    config_class = WithoutThreshold


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (object, "it is not a subclass of tfrnet.unlearner.Unlearner"),
        (Bare, "its class does not define label, config_class, _propose, attach, read_state"),
        (Unreadable, "its class does not define read_state"),
        (
            OfUnguarded,
            "its config_class is not a subclass of tfrnet.core.guarded_settings.GuardedSettings",
        ),
        (OfWithoutThreshold, "its settings have has_mask, but no dormant_threshold"),
        (Hush, ""),
        (Flatten, ""),
    ],
)
def test_what_a_method_lacks_is_said(method, words):
    assert method_problem(method) == words


def test_such_a_method_is_refused_where_it_is_found(monkeypatch):
    monkeypatch.setattr(PLACE, OfWithoutThreshold)
    with pytest.raises(InputError) as refused:
        find_method("ga")
    assert str(refused.value) == (
        "the method 'ga' of tfrnet.methods.ga cannot be used: "
        "its settings have has_mask, but no dormant_threshold"
    )


class WithoutEffect(Hush):
    method = "ga"

    def __init__(self, *arguments, **options):
        Unlearner.__init__(self, *arguments, **options)


def test_a_method_that_sets_no_effect_is_refused_and_leaves_no_state(monkeypatch, tmp_path: Path):
    monkeypatch.setattr(PLACE, WithoutEffect)
    model, tokenizer = tiny.make_trained_model(), tiny.make_tokenizer()
    with pytest.raises(InputError) as refused:
        Session(model, tokenizer, tmp_path / "state", tiny.examples(12), method="ga")
    assert str(refused.value) == (
        "the method 'ga' cannot be used: its __init__ does not set effect, state"
    )
    assert not (tmp_path / "state").exists()


# The settings that every method has


@pytest.mark.parametrize("name", ["tfr", "ga", "o3", "llm-eraser"])
def test_every_methods_settings_are_guarded(name):
    config = find_config(name)
    assert issubclass(config, GuardedSettings)
    # Methods that train come without a guard, as they were published.
    defaults = GuardedSettings().to_dict() | {"use_guard": name == "tfr"}
    if name == "tfr":
        defaults["guard_absolute"] = 0.02
    own = {field.name: field for field in fields(config)}
    for field in fields(GuardedSettings):
        assert own[field.name].metadata == field.metadata
        assert own[field.name].default == defaults[field.name]
