"""TFR-Net as one of the methods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfrnet.config import TFRConfig
from tfrnet.masking.channels import find_channels
from tfrnet.masking.mask import ChannelMask
from tfrnet.tfr.controller import TFRNet
from tfrnet.tfr.memory import ChannelState
from tfrnet.unlearner import Method

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def _attach(model: PreTrainedModel, config: TFRConfig) -> ChannelMask:
    return ChannelMask(model, find_channels(model, config))


METHOD = Method(
    name="tfr",
    about="TFR-Net: a mask on output channels, guarded; the weights stay frozen",
    config=TFRConfig,
    unlearner=TFRNet,
    read_state=ChannelState.from_tensors,
    attach=_attach,
)
