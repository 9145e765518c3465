"""Putting a state on a model without opening the state for writing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfrnet.models.fingerprint import fingerprint
from tfrnet.state.store import StateStore
from tfrnet.unlearner import find_method

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def apply_state(model: PreTrainedModel, folder: str | Path, generation: int | None = None) -> Any:
    """Let a base model act as in a state (the current or a kept generation), until `detach`.

    For TFR-Net what is returned is the mask; the methods' `with` blocks end in `detach` too.
    """
    store = StateStore.open(Path(folder))
    manifest = store.manifest
    manifest.refuse_base(Path(folder), fingerprint(model))
    state = store.load(generation)
    effect = find_method(manifest.method).attach(model, manifest.settings())
    try:
        manifest.refuse_layout(Path(folder), effect.layout())
        effect.show(state)
    except BaseException:
        effect.detach()
        raise
    return effect
