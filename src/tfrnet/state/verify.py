"""Recomputing every digest of a state, to show that nothing in it was changed or lost."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from tfrnet.errors import StateError
from tfrnet.state.layout import Layout
from tfrnet.state.store import StateStore
from tfrnet.state.tensors import State
from tfrnet.tfr.memory import ChannelState


@dataclass(frozen=True)
class Check:
    """One thing looked at: whether it held, and if not, why."""

    name: str
    passed: bool
    detail: str = ""


def verify(folder: Path) -> list[Check]:
    """Check a state folder without changing it. Opening it checks the chain and the pointer."""
    layout = Layout(folder)
    if not (layout.manifest.exists() or layout.ledger.exists()):
        raise StateError(f"{folder} holds no state (no manifest.json)")
    try:
        store = StateStore.open(folder)
    except StateError as error:
        return [Check("ledger chain, pointer and manifest", False, str(error))]
    entries = f"{store.lines} lines"
    if store.unfinished:
        entries += "; an unfinished commit is put right when the state is next opened for writing"
    checks = [Check("ledger chain, pointer and manifest", True, entries), _check_key(store)]
    return checks + [_check_generation(store, number) for number in _expected(store)]


def _check_key(store: StateStore) -> Check:
    try:
        store.key()
    except StateError as error:
        return Check("key", False, str(error))
    return Check("key", True)


def _expected(store: StateStore) -> list[int]:
    """Return the generations to look at: those there, the first, and what gaps say is missing.

    Pruning takes the oldest away, so that what is kept is an unbroken row and the first.
    """
    present = store.layout.numbers()
    oldest = min((number for number in present if number > 0), default=store.generation)
    return sorted({0, *present, *range(oldest, store.generation + 1)})


def _check_generation(store: StateStore, number: int) -> Check:
    name = f"generation {number}"
    if number == store.generation + 1:
        return Check(name, True, "of an unfinished commit, not in the ledger yet")
    if number not in store.history.digests:
        return Check(name, False, f"{store.layout.generation(number)} is not in the ledger")
    try:
        problem = _problem(store.load(number), store.manifest.channel_count())
    except StateError as error:
        problem = str(error)
    return Check(name, not problem, problem or f"digest {store.history.digests[number][:12]}")


def _problem(state: State, channels: int) -> str:
    for name, tensor in state.tensors().items():
        if not bool(torch.isfinite(tensor).all()):
            return f"{name} holds values that are not finite"
    return _mask_problem(state, channels) if isinstance(state, ChannelState) else ""


def _mask_problem(state: ChannelState, channels: int) -> str:
    for name, tensor in state.tensors().items():
        expected = (len(tensor), channels) if name == "forgotten" else (channels,)
        if tensor.dtype != torch.float32 or tensor.shape != expected:
            return f"{name} is {tensor.dtype} of shape {tuple(tensor.shape)}, not {channels} floats"
    if not bool(((state.mask >= 0) & (state.mask <= 1)).all()):
        return "the mask leaves [0, 1]"
    return ""
