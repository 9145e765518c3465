"""What is done to channels is done to all modules at once, however many there are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests import tiny
from tfrnet import TFRConfig
from tfrnet.masking.channels import ChannelIndex, find_channels
from tfrnet.masking.mask import ChannelMask, _Parts
from tfrnet.methods.tfr.scoring import ChannelScores
from tfrnet.methods.tfr.state import ChannelState
from tfrnet.methods.tfr.steps.common import score_risk


class _Counting(TorchDispatchMode):
    """Counts the operations of torch, views included."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def _evidence_operations(modules: int) -> int:
    widths = [8, 24, 8] * modules
    generator = torch.Generator().manual_seed(0)
    scores = [
        ChannelScores(*torch.rand(4, sum(widths), generator=generator), 1.0, 1.0) for _ in range(2)
    ]
    state = ChannelState.initial(sum(widths), with_fisher=True)
    score_risk(state, *scores, widths, TFRConfig())  # tables of places are made once
    with _Counting() as counting:
        score_risk(state, *scores, widths, TFRConfig())
    return counting.count


def test_evidence_takes_as_many_operations_for_a_hundred_modules_as_for_six():
    assert _evidence_operations(2) == _evidence_operations(40) > 0


@pytest.mark.parametrize("seed", range(5))
def test_pieces_of_a_mask_say_what_each_holds(seed: int):
    widths = [("a", 4), ("b", 1), ("c", 7), ("d", 3)]
    index = ChannelIndex(widths)
    generator = torch.Generator().manual_seed(seed)
    choices = torch.tensor([1.0, 1.0, 0.5, 0.009, 0.0])
    values = choices[torch.randint(5, (index.total,), generator=generator)]
    values[seed : seed + 6] = 1
    parts = _Parts(index, values, torch.bfloat16)
    for part, piece in zip(parts, torch.split(values, [4, 1, 7, 3]), strict=True):
        assert torch.equal(part.values, piece)
        assert torch.equal(part.narrow, piece.bfloat16())
        assert part.is_one == all(value == 1 for value in piece.tolist())
        near_zero = [i for i, value in enumerate(piece.tolist()) if value < 1e-2]
        assert (part.faint is None) == (not near_zero)
        if part.faint is not None:
            assert part.faint.tolist() == near_zero


def test_the_masks_of_a_pass_are_made_in_as_many_operations_for_many_modules_as_for_few():
    """Of one tensor: no operation but views for each module."""
    counts = []
    model = tiny.make_model("llama")
    for layers in ((0,), None):
        index = find_channels(model, layers=layers)
        with ChannelMask(model, index) as mask, _Counting() as counting:
            mask._rows(3)
        counts.append(counting.count)
    assert counts[0] == counts[1] > 0


def test_a_mask_is_taken_apart_in_as_many_operations_for_a_hundred_modules_as_for_three():
    counts = []
    for modules in (1, 40):
        index = ChannelIndex([(str(i), width) for i, width in enumerate([8, 24, 8] * modules)])
        values = torch.linspace(0.1, 1, index.total)
        with _Counting() as counting:
            _Parts(index, values, torch.bfloat16)
        counts.append(counting.count)
    assert counts[0] == counts[1] > 0
