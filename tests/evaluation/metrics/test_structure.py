import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tfrnet.core.errors import InputError
from tfrnet.evaluation.metrics.structure import (
    Composition,
    MaskChange,
    composition,
    mask_changes,
    mask_figures,
    random_overlap,
)
from tfrnet.methods.tfr.suppression import suppress

steady = settings(derandomize=True, deadline=None)

RANKINGS = [[1, 2, 3, 4], [1, 2, 5, 6], [1, 5, 7, 8], [6, 7, 9, 10], [2, 9, 10, 11]]


def test_composition():
    shares = composition(RANKINGS, 4)
    assert [share.core for share in shares] == [1, 0.5, 0.25, 0, 0.25]
    assert [share.new for share in shares] == [0, 0.5, 0.5, 0.5, 0.25]
    assert [share.recurring for share in shares] == [0, 0, 0.25, 0.5, 0.5]


def test_only_the_first_channels_of_a_ranking_count():
    longer = [[*ranking, 99, 1] for ranking in RANKINGS]
    assert composition(longer, 4) == composition(RANKINGS, 4)
    assert composition(RANKINGS, 1) == [
        Composition(1, 0, 0),
        Composition(1, 0, 0),
        Composition(1, 0, 0),
        Composition(0, 1, 0),
        Composition(0, 1, 0),
    ]


@steady
@given(st.lists(st.permutations(range(12)), min_size=1, max_size=8), st.integers(1, 12))
def test_shares_sum_to_one(rankings, size):
    shares = composition(rankings, size)
    assert shares[0] == Composition(1, 0, 0)
    seen = sum(share.new for share in shares) * size + size
    assert seen == pytest.approx(len({c for ranking in rankings for c in ranking[:size]}))
    for share in shares:
        assert share.core + share.new + share.recurring == pytest.approx(1, abs=1e-9)
        assert min(share.core, share.new, share.recurring) >= 0


@pytest.mark.parametrize(
    ("rankings", "size", "message"),
    [
        ([[1, 2], [3]], 2, "request 2 has fewer than 2"),
        ([[1, 1]], 2, "request 1 has fewer than 2"),
        ([[1, 2]], 0, "positive"),
    ],
)
def test_incomplete_rankings_are_refused(rankings, size, message):
    with pytest.raises(InputError, match=message):
        composition(rankings, size)


def test_random_overlap():
    assert random_overlap(128, 1024) == 0.125
    for size, channels in [(0, 5), (6, 5)]:
        with pytest.raises(InputError):
            random_overlap(size, channels)


def test_capacity_of_a_mask_in_parts_and_whole():
    parts = [torch.tensor([1, 0.05, 0.5, 1]), torch.tensor([0.1, 1, 1, 1, 0.02, 0.6])]
    figures = mask_figures(parts, 0.1)
    assert (figures.total, figures.dormant, figures.suppressed_now) == (10, 3, 5)
    assert figures.capacity == pytest.approx(0.7, abs=1e-9)
    assert figures.capacity_loss == pytest.approx(30, abs=1e-9)
    assert mask_figures(torch.cat(parts), 0.1) == figures


def test_a_channel_is_dormant_at_the_fourth_suppression():
    mask = torch.ones(1)
    dormant = []
    for _ in range(4):
        mask = suppress(mask, torch.tensor([0]), 0.5)
        dormant.append(mask_figures(mask, 0.1).dormant)
    assert mask.item() == 0.0625
    assert dormant == [0, 0, 0, 1]


@steady
@given(st.lists(st.floats(0, 1, width=32), min_size=1), st.floats(0, 0.875, width=32))
def test_capacity_and_its_loss_are_the_same_curve(values, threshold):
    figures = mask_figures(torch.tensor(values), threshold)
    assert figures.capacity_loss == pytest.approx(100 * (1 - figures.capacity), abs=1e-9)
    assert 0 <= figures.dormant <= figures.suppressed_now <= figures.total == len(values)


@pytest.mark.parametrize(
    "mask",
    [[], [torch.empty(0)], torch.tensor([1.1]), torch.tensor([-0.1, 1]), torch.tensor(torch.nan)],
)
def test_what_is_no_mask_is_refused(mask):
    with pytest.raises(InputError, match="mask"):
        mask_figures(mask, 0.1)


def test_changes_of_a_stream_by_hand():
    masks = [
        torch.tensor([1.0, 1.0, 1.0, 1.0]),
        torch.tensor([0.05, 0.5, 1.0, 1.0]),
        torch.tensor([0.05, 0.5, 1.0, 1.0]),  # rejected
        torch.tensor([0.6, 0.1, 1.0, 0.0]),
    ]
    assert mask_changes(masks, 0.1) == [
        MaskChange(suppressed_ever=2, recovered=0, net_dormant=1),
        MaskChange(suppressed_ever=2, recovered=0, net_dormant=0),
        MaskChange(suppressed_ever=3, recovered=1, net_dormant=1),
    ]
    assert mask_changes(masks[:1], 0.1) == []
