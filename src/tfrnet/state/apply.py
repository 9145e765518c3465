"""Putting a state's mask on a model without opening the state for writing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tfrnet.masking.channels import find_channels
from tfrnet.masking.mask import ChannelMask
from tfrnet.models.fingerprint import fingerprint
from tfrnet.state.store import StateStore

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def apply_state(
    model: PreTrainedModel, folder: str | Path, generation: int | None = None
) -> ChannelMask:
    """Attach the mask of a state (the current or a kept generation) to its base model."""
    store = StateStore.open(Path(folder))
    index = find_channels(model, store.manifest.tfr_config())
    store.manifest.refuse_model(Path(folder), fingerprint(model), index.to_list())
    state = store.load(generation)
    mask = ChannelMask(model, index)
    mask.set(state.mask)
    return mask
