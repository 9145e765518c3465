"""States that were made for something else are refused with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests import tiny
from tests.state.made_up import (
    contents,
)
from tfrnet.core.errors import StateError
from tfrnet.method_state import apply_state
from tfrnet.methods.tfr.config import TFRConfig
from tfrnet.session import Session
from tfrnet.state.store import StateStore

SMALL = TFRConfig.paper(guard_examples=4, retain_examples=4)


@pytest.fixture(scope="module")
def llama():
    return tiny.make_model("llama")


@pytest.fixture(scope="module")
def used_state(llama, tokenizer, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("used") / "state"
    with Session(llama, tokenizer, folder, tiny.examples(8), config=SMALL) as session:
        session.forget(tiny.requests(1)[0])
    return folder


@pytest.mark.parametrize(
    ("changes", "seed", "reason"),
    [
        ({"layers": [0]}, None, "another channel selection"),
        ({"target_modules": ["q_proj"]}, None, "another channel selection"),
        ({"budget": 7}, None, "made with budget=128, not 7"),
        ({"step": "fisher"}, None, "made with step=select, not fisher"),
        ({}, 5, "made with seed 0, not 5"),
    ],
)
def test_a_state_made_with_other_settings_is_refused_with_the_reason(
    used_state: Path, llama, tokenizer, changes: dict, seed: int | None, reason: str
) -> None:
    before = contents(used_state)
    config = TFRConfig.from_dict(SMALL.to_dict() | changes)
    with pytest.raises(StateError, match=reason):
        Session(llama, tokenizer, used_state, tiny.examples(8), config=config, seed=seed)
    assert contents(used_state) == before
    assert not any(module._forward_hooks for module in llama.modules())
    StateStore.open(used_state, write=True).close()  # the lock was given back


def test_one_changed_weight_makes_another_base_model(used_state: Path, tokenizer) -> None:
    model = tiny.make_model("llama")
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[3, 5] += 0.5
    with pytest.raises(StateError, match="another base model"):
        Session(model, tokenizer, used_state, tiny.examples(8))
    with pytest.raises(StateError, match="another base model"):
        apply_state(model, used_state)
