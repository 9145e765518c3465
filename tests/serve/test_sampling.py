"""Tokens are drawn as often as temperature and top_p say."""

from __future__ import annotations

import pytest
import torch

from tfrnet.serve.sampling import Sampler, Sampling

LOGITS = torch.tensor([2.0, 1.0, 0.0, -1.0, -2.0])
DRAWS = 1500


def shares(sampling: Sampling) -> torch.Tensor:
    sampler = Sampler(sampling)
    drawn = [sampler.choose(LOGITS, 0).token for _ in range(DRAWS)]
    return torch.bincount(torch.tensor(drawn), minlength=len(LOGITS)) / DRAWS


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_temperature(temperature: float) -> None:
    found = shares(Sampling(temperature=temperature, seed=1))
    assert torch.allclose(found, (LOGITS / temperature).softmax(-1), atol=0.05)


def test_top_p_leaves_the_unlikely_out() -> None:
    chances = LOGITS.softmax(-1)
    assert chances[:2].sum() > 0.8 > chances[0]
    found = shares(Sampling(top_p=0.8, seed=1))
    assert found[2:].sum() == 0
    assert torch.allclose(found[:2], chances[:2] / chances[:2].sum(), atol=0.05)
