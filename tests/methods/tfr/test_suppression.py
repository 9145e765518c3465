import pytest
import torch

from tfrnet.methods.tfr.suppression import select_channels, suppress


def select(mask, priority, budget=10, threshold=0.1, sparsity=1.0):
    return select_channels(
        torch.tensor(mask), torch.tensor(priority), budget, threshold, sparsity
    ).tolist()


ONES = [1.0] * 6


def test_the_highest_priorities_are_taken():
    assert select(ONES, [0.1, 0.9, 0.3, 0.8, 0.2, 0.7], budget=3) == [1, 3, 5]


def test_ties_go_to_the_lower_index():
    assert select(ONES, [0.5, 0.7, 0.5, 0.5, 0.7, 0.5], budget=4) == [0, 1, 2, 4]


def test_priority_zero_is_never_taken():
    assert select(ONES, [0.0, 0.2, 0.0, 0.0, 0.0, 0.0], budget=4) == [1]


def test_dormant_channels_are_not_taken_again():
    assert select([1, 0.1, 0.05, 0.11, 1, 1], [0.1, 0.9, 0.8, 0.7, 0.0, 0.0]) == [0, 3]


@pytest.mark.parametrize(("dormant", "taken"), [(0, 3), (1, 2), (3, 0), (5, 0)])
def test_the_sparsity_cap_counts_what_is_dormant(dormant, taken):
    """Of 100 channels at a cap of 0.03, at most 3 may be dormant; more than 3 leave no room."""
    mask = [0.0] * dormant + [1.0] * (100 - dormant)
    assert len(select(mask, [1.0] * 100, budget=50, sparsity=0.03)) == taken


def test_budget_zero_takes_none():
    assert select(ONES, [1.0] * 6, budget=0) == []


def test_suppression_scales_only_the_selected():
    mask = torch.tensor([1.0, 0.8, 0.5])
    assert suppress(mask, torch.tensor([1, 2]), 0.5).tolist() == pytest.approx([1, 0.4, 0.25])
    assert suppress(mask, torch.tensor([0]), 1.0).tolist() == pytest.approx([0, 0.8, 0.5])
    assert mask.tolist() == pytest.approx([1, 0.8, 0.5])


def test_half_strength_makes_a_channel_dormant_at_the_fourth_time():
    mask = torch.ones(1)
    for _ in range(3):
        mask = suppress(mask, torch.tensor([0]), 0.5)
    assert mask.item() == 0.125
    assert suppress(mask, torch.tensor([0]), 0.5).item() == 0.0625
