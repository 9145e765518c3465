"""Seconds and bytes of a block, against blocks whose cost is known."""

import time

import pytest
import torch

from tfrnet.core.cost import Account


def test_a_large_tensor_that_is_gone_again_is_in_the_peak():
    with Account(torch.nn.Linear(2, 2)) as account:
        large = torch.ones(50_000_000)  # 200 MB
        seen, deadline = 0, time.monotonic() + 10
        while seen < 150e6 and time.monotonic() < deadline:  # a busy machine samples late
            time.sleep(0.01)
            seen = account.peak - account.before
        del large
    assert 150e6 < seen <= account.peak - account.before < 400e6


def test_stages_add_up_and_the_total_holds_them():
    with Account(torch.nn.Linear(2, 2)) as account:
        for _ in range(2):
            with account.time("nap"):
                time.sleep(0.03)
        time.sleep(0.02)
    seconds = account.seconds()
    # As it is rounded.
    assert 0.059 <= seconds["nap"] <= seconds["total"] - 0.019


def test_a_stage_that_fails_is_counted_too():
    account = Account(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="no"), account, account.time("failing"):
        raise ValueError("no")
    assert set(account.seconds()) == {"failing", "total"}
