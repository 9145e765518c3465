import pytest
import torch

from tfrnet import TFRConfig
from tfrnet.methods.tfr.recovery import candidate_pool, recover, recovery_score, recovery_set

CONFIG = TFRConfig.paper(
    current_risk_ceiling=0.5,
    history_risk_ceiling=0.4,
    retain_gain=2,
    current_penalty=3,
    history_penalty=5,
    hit_penalty=7,
)


def test_pool_needs_dormancy_and_low_risk_now_and_before():
    mask = torch.tensor([0.0, 0.1, 0.2, 0.0, 0.0, 0.05])
    chi = torch.tensor([0.0, 0.5, 0.0, 0.6, 0.0, 0.1])
    priority = torch.tensor([0.0, 0.4, 0.0, 0.0, 0.5, 0.3])
    pool = candidate_pool(mask, chi, priority, CONFIG)
    assert pool.tolist() == [True, True, False, False, False, True]


def test_score_by_hand():
    score = recovery_score(
        torch.tensor([2.0, 1.0]),
        torch.tensor([0.0, 0.1]),
        torch.tensor([0.0, 0.2]),
        torch.tensor([0.0, 0.3]),
        CONFIG,
    )
    assert score.tolist() == pytest.approx([4.0, 2 - 0.3 - 1.0 - 2.1])


def test_set_needs_pool_and_score_above_threshold_and_excludes_the_just_suppressed():
    pool = torch.tensor([True, True, True, False])
    score = torch.tensor([1.0, 0.0, 2.0, 3.0])
    chosen = recovery_set(pool, score, torch.tensor([2]), threshold=0.0)
    assert chosen.tolist() == [0]


def test_an_empty_pool_recovers_nothing():
    none = torch.zeros(3, dtype=torch.bool)
    chosen = recovery_set(none, torch.ones(3), torch.empty(0, dtype=torch.long), 0.0)
    mask = torch.tensor([0.0, 0.5, 1.0])
    assert chosen.numel() == 0
    assert torch.equal(recover(mask, chosen, 0.5), mask)


def test_a_share_of_what_is_missing_comes_back():
    mask = torch.tensor([0.0, 0.1, 0.9])
    assert recover(mask, torch.tensor([0, 1]), 0.5).tolist() == pytest.approx([0.5, 0.55, 0.9])
    assert recover(mask, torch.tensor([0]), 1.0).tolist() == pytest.approx([1.0, 0.1, 0.9])
