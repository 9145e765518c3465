import pytest
import torch

from tfrnet.methods.tfr.steps.fisher import fisher_direction, running_fisher
from tfrnet.methods.tfr.suppression import lower


def test_first_request_sets_the_running_mean_and_later_ones_move_it():
    first = running_fisher(torch.zeros(2), torch.tensor([1.0, 3.0]), 0.9)
    assert first.tolist() == [1, 3]
    second = running_fisher(first, torch.tensor([2.0, 0.0]), 0.9)
    assert second.tolist() == pytest.approx([1.1, 2.7])


def test_direction_by_hand():
    forget = torch.tensor([-4.0, -4.0, -4.0, 2.0])  # suppressing the last would lower the loss
    retain = torch.tensor([0.0, -1.0, 3.0, 0.0])  # suppressing the second hurts what is kept
    fisher = torch.tensor([1.0, 1.0, 5.0, 1.0])
    # gains 4 3 4 0 over fisher + 0.5 * mean(fisher) = fisher + 1: 2, 1.5, 4/6, 0; largest 2
    direction = fisher_direction(forget, retain, fisher, damping=0.5, budget=4)
    assert direction.tolist() == pytest.approx([1, 0.75, 1 / 3, 0])


def test_direction_keeps_the_largest_within_the_budget():
    forget = torch.tensor([-1.0, -3.0, -2.0, -3.0])
    direction = fisher_direction(forget, torch.zeros(4), torch.ones(4), damping=1.0, budget=2)
    assert direction.tolist() == [0, 1, 0, 1]


def test_nothing_to_gain_is_no_direction():
    direction = fisher_direction(torch.ones(3), torch.zeros(3), torch.ones(3), 0.3, 3)
    assert direction.tolist() == [0, 0, 0]


def test_step_clips_at_zero():
    moved = lower(torch.tensor([1.0, 0.3]), torch.tensor([0.5, 1.0]), 0.8, 0.1, 1.0)
    assert moved.tolist() == pytest.approx([0.6, 0.0])


def test_step_respects_the_sparsity_cap():
    """Of 50 channels one may be dormant: the one of the largest direction; the rest stay put."""
    mask = torch.ones(50)
    direction = torch.zeros(50)
    direction[:3] = torch.tensor([0.95, 1.0, 0.95])
    direction[3] = 0.2
    moved = lower(mask, direction, 1.0, dormant_threshold=0.1, max_sparsity=0.02)
    assert moved[:4].tolist() == pytest.approx([1.0, 0.0, 1.0, 0.8])
