"""The placebos of the trajectory choose as they say."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from benchmarks.arms import REAL, pool_of, recovering
from tests import tiny
from tfrnet import TFRConfig, TFRNet
from tfrnet.methods.tfr.state import ChannelState

CONFIG = replace(
    TFRConfig(), retain_examples=4, guard_examples=4, siblings=2, steps=2, use_guard=False
)


def make_net() -> TFRNet:
    guard = tiny.examples(4, 50)  # of its own, so that all retain examples are held
    return TFRNet(tiny.make_model(), tiny.make_tokenizer(), tiny.examples(8), CONFIG, guard=guard)


def masks(arm: str) -> list[torch.Tensor]:
    """The mask after each of three requests."""
    net = make_net()
    pool, found = pool_of(arm, net.layout()), []
    for request in tiny.requests(3, size=2):
        with recovering(pool):
            net.forget(request)
        found.append(net.state.mask.clone())
    return found


@pytest.mark.slow
def test_an_arm_changes_nothing_before_something_can_be_raised():
    first = {arm: masks(arm) for arm in (REAL, "permuted", "retain", "none")}
    for found in first.values():
        assert torch.equal(found[0], first[REAL][0])
    ends = [found[-1] for found in first.values()]
    assert all(not torch.equal(end, ends[0]) for end in ends[1:])


@pytest.mark.slow
def test_the_real_arm_is_the_method_itself():
    net = make_net()
    for request in tiny.requests(3, size=2):
        net.forget(request)
    assert torch.equal(net.state.mask, masks(REAL)[-1])


def test_shuffled_channels_stay_in_their_modules(monkeypatch):
    # Three channels of low risk, all in the first module.
    state = ChannelState.initial(10, with_fisher=False)
    state = replace(state, mask=torch.zeros(10))
    allowed = torch.arange(10) < 3
    monkeypatch.setattr("benchmarks.arms.common.recovery_pool", lambda *_: allowed)
    pool = pool_of("permuted", [["a", 4], ["b", 6]])
    drawn = torch.stack([pool(state, None, None) for _ in range(50)])
    assert bool((drawn[:, :4].sum(1) == 3).all())
    assert not drawn[:, 4:].any()
    assert len({tuple(row.tolist()) for row in drawn}) > 1


def test_an_unknown_arm_is_refused():
    with pytest.raises(KeyError):
        pool_of("real ", [])
