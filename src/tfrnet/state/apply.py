"""Putting a state's mask on a model without opening the state for writing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tfrnet.errors import StateError
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
    manifest = store.manifest
    if fingerprint(model) != manifest.fingerprint:
        raise StateError(f"state {folder} was made for another base model ({manifest.model})")
    index = find_channels(model, manifest.tfr_config())
    if index.to_list() != manifest.channels:
        raise StateError(f"state {folder} was made for other channels than this model has")
    state = store.load(generation)
    mask = ChannelMask(model, index)
    mask.set(state.mask)
    return mask
