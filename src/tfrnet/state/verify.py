"""Recomputing every digest of a state, to show that nothing in it was changed or lost."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from tfrnet.errors import StateError
from tfrnet.state.store import StateStore
from tfrnet.tfr.memory import ChannelState


@dataclass(frozen=True)
class Check:
    """One thing looked at: whether it held, and if not, why."""

    name: str
    passed: bool
    detail: str = ""


def verify(folder: Path) -> list[Check]:
    """Check a state folder without changing it. Opening it checks the chain and the pointer."""
    try:
        store = StateStore.open(folder)
    except StateError as error:
        return [Check("ledger chain and pointer", False, str(error))]
    entries = f"{len(store.entries)} lines"
    checks = [Check("ledger chain and pointer", True, entries)]
    sound = store.manifest_matches()
    detail = "" if sound else f"{store.layout.manifest} is not the one the state was made with"
    checks.append(Check("manifest", sound, detail))
    return checks + [_check_generation(store, number) for number in store.layout.numbers()]


def _check_generation(store: StateStore, number: int) -> Check:
    name = f"generation {number}"
    if number not in store.history.digests:
        return Check(name, False, f"{store.layout.generation(number)} is not in the ledger")
    try:
        problem = _problem(store.load(number), store.manifest.channel_count())
    except StateError as error:
        problem = str(error)
    return Check(name, not problem, problem or f"digest {store.history.digests[number][:12]}")


def _problem(state: ChannelState, channels: int) -> str:
    for name, tensor in state.tensors().items():
        if tensor.dtype != torch.float32 or tensor.shape != (channels,):
            return f"{name} is {tensor.dtype} of shape {tuple(tensor.shape)}, not {channels} floats"
        if not bool(torch.isfinite(tensor).all()):
            return f"{name} holds values that are not finite"
    if not bool(((state.mask >= 0) & (state.mask <= 1)).all()):
        return "the mask leaves [0, 1]"
    return ""
