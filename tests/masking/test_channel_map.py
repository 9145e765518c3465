"""Channel maps against counts made by hand."""

import pytest
import torch

from tests import tiny
from tfrnet.core.errors import InputError
from tfrnet.masking.channel_map import channel_map
from tfrnet.masking.channels import find_channels
from tfrnet.masking.mask import ChannelMask

LAYOUT = [
    ["model.layers.0.q_proj", 2],
    ["model.layers.0.up_proj", 3],
    ["model.layers.10.q_proj", 2],
    ["model.layers.2.q_proj", 1],
]


def test_counts_by_hand():
    masks = [
        torch.ones(8),
        torch.tensor([0.1, 1, 0.5, 0.0, 1, 1, 0.05, 1]),
        # The first channel comes back in part, the fourth for good; the seventh sinks further.
        torch.tensor([0.3, 1, 0.995, 1.0, 1, 1, 0.01, 1]),
    ]
    assert channel_map(LAYOUT, masks, 0.1) == {
        "projections": ["q_proj", "up_proj"],
        "layers": [0, 2, 10],
        "channels": [[2, 3], [1, 0], [2, 0]],
        "suppressed": [[1, 1], [0, 0], [1, 0]],
        "changed": [[1, 0], [0, 0], [1, 0]],  # the third is changed by less than 1 %
        "dormant": [[0, 0], [0, 0], [1, 0]],
        "recovered": [[1, 2], [0, 0], [0, 0]],
    }


def test_a_channel_raised_and_lowered_again_counts_as_recovered():
    masks = [torch.tensor([value]) for value in (1.0, 0.0, 0.5, 0.0)]
    found = channel_map([["h.0.c_fc", 1]], masks, 0.1)
    assert (found["suppressed"], found["dormant"], found["recovered"]) == ([[1]], [[1]], [[1]])


def test_a_mask_at_the_threshold_is_dormant():
    found = channel_map([["h.0.c_fc", 2]], [torch.tensor([0.5, 0.51])], 0.5)
    assert found["dormant"] == [[1]]


def test_modules_outside_layers_and_of_the_same_name():
    layout = [["embed.proj", 1], ["h.0.attn.c_proj", 2], ["h.0.mlp.c_proj", 3]]
    found = channel_map(layout, [torch.zeros(6)], 0.1)
    assert found["layers"] == [None, 0]
    assert found["projections"] == ["proj", "c_proj"]
    assert found["channels"] == found["dormant"] == [[1, 0], [0, 5]]


def test_layout_of_a_live_mask():
    model = tiny.make_model("llama")
    with ChannelMask(model, find_channels(model)) as mask:
        found = channel_map(mask.layout(), [mask.values], 0.1)
    assert found["layers"] == list(range(model.config.num_hidden_layers))
    assert sum(map(sum, found["channels"])) == mask.index.total
    assert not any(map(sum, found["suppressed"]))


@pytest.mark.parametrize("masks", [[], [torch.ones(7)], [torch.ones(8), torch.ones(9)]])
def test_masks_that_do_not_fit_are_refused(masks):
    with pytest.raises(InputError, match="8 channels"):
        channel_map(LAYOUT, masks, 0.1)
