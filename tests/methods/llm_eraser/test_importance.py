"""Importances gathered by hooks against gradients of an ordinary model, taken one by one."""

from __future__ import annotations

import pytest
import torch

from tests import tiny
from tests.methods.llm_eraser.test_pruning import PRUNED, a_state
from tfrnet.core.errors import InputError
from tfrnet.methods.llm_eraser.importance import gathered_importance, refuse_unscored
from tfrnet.methods.llm_eraser.pruning import PrunedEffect
from tfrnet.models.lora import LoraOptions

IDS = torch.randint(1, tiny.VOCABULARY, (5, 12), generator=torch.Generator().manual_seed(3))
PARTS = ("gate_proj", "up_proj", "down_proj")


def mean_loss(model, rows, of: int = 5):
    return model(rows, labels=rows).loss * len(rows) / of


def reference(folded: dict, dtype=torch.float32) -> torch.Tensor:
    """Sum |w * g| of a plain model that has the adapter and the mask in its weights."""
    model = tiny.make_model(dtype=dtype)
    model.load_state_dict(folded, strict=False)
    flat = []
    for layer in model.model.layers:
        weights = [getattr(layer.mlp, part).weight for part in PARTS]
        gate, up, down = (
            (w.float() * g.float()).abs()
            for w, g in zip(
                weights, torch.autograd.grad(mean_loss(model, IDS), weights), strict=True
            )
        )
        flat.append(gate.sum(1) + up.sum(1) + down.sum(0))
    return torch.cat(flat).detach()


def gather(effect, groups, layers=(0, 1, 2)) -> torch.Tensor:
    with gathered_importance(effect, layers, len(groups)) as importance:
        for group in groups:
            mean_loss(effect.model, group).backward()
            held = [p for p in effect.model.parameters() if p.grad is not None]
            assert not held
    return importance


@pytest.mark.parametrize("sizes", [(5,), (2, 2, 1), (1, 1, 1, 1, 1)])
@pytest.mark.parametrize("with_state", [False, True])
def test_the_importance_is_that_of_the_whole_gradient(sizes, with_state) -> None:
    model = tiny.make_model().requires_grad_(False)
    with PrunedEffect(model, LoraOptions(4, 8)) as effect:
        if with_state:
            effect.show(a_state(effect))
        expected = reference(effect.folded())
        found = gather(effect, IDS.split(sizes))
    assert expected.max() > 1e-3
    assert torch.allclose(found, expected, rtol=1e-3, atol=1e-6)
    silent = found.view(3, 48) == 0
    assert int(silent.sum()) == (len(PRUNED) if with_state else 0)
    assert all(silent[place] for place in PRUNED) == with_state


def test_only_the_layers_that_are_asked_for_are_scored() -> None:
    model = tiny.make_model().requires_grad_(False)
    with PrunedEffect(model, LoraOptions(4, 8)) as effect:
        whole = gather(effect, [IDS])
        some = gather(effect, [IDS], (1, 1)).view(3, 48)
    assert torch.allclose(some[1], whole.view(3, 48)[1])
    assert not some[0].any() and not some[2].any()


def test_bfloat16_gradients_are_summed_in_float32() -> None:
    model = tiny.make_model(dtype=torch.bfloat16).requires_grad_(False)
    with PrunedEffect(model, LoraOptions(4, 8)) as effect:
        whole = gather(effect, [IDS])
        expected = reference(effect.folded(), torch.bfloat16)
        # Ten small gradients after a large one: one by one, bfloat16 would round each away.
        with gathered_importance(effect, (0, 1, 2), 11) as more:
            for weight in [1.0] + [1e-3] * 10:
                (weight * mean_loss(model, IDS)).backward()
    assert whole.dtype == torch.float32
    assert torch.allclose(whole, expected, rtol=1e-3)
    assert float(more.sum() / whole.sum()) == pytest.approx(1.01, abs=2e-3)


def test_the_weights_are_left_as_they_were_also_after_an_error() -> None:
    model = tiny.make_model().requires_grad_(False)
    model.model.layers[0].mlp.up_proj.weight.requires_grad_(True)
    flags = [parameter.requires_grad for parameter in model.parameters()]
    with PrunedEffect(model, LoraOptions(4, 8, ("q_proj",))) as effect:
        with pytest.raises(ZeroDivisionError), gathered_importance(effect, (0, 1), 2):
            mean_loss(model, IDS).backward()
            raise ZeroDivisionError
        assert all(p.grad is None for p in model.parameters())
        # The hooks are gone: gradients stay where they belong.
        mean_loss(model, IDS).backward()
        assert model.model.layers[0].mlp.up_proj.weight.grad is not None
    assert [parameter.requires_grad for parameter in model.parameters()] == flags


def test_layers_that_cannot_be_scored_are_refused() -> None:
    with PrunedEffect(tiny.make_model(), LoraOptions(4, 8)) as effect:
        refuse_unscored(effect, (0, 2))
        with pytest.raises(InputError, match=r"layers names layer 3, but .* has layers 0 to 2"):
            refuse_unscored(effect, (1, 3))
        weight = effect.base_weight("model.layers.1.mlp.up_proj").requires_grad_(False)
        weight.data = weight.data.to(torch.int8)
        with pytest.raises(InputError, match=r"up_proj is quantised \(torch.int8\)"):
            refuse_unscored(effect, (1,))
        refuse_unscored(effect, (0, 2))
