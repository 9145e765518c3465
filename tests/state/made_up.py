"""States of a few channels with made-up values, and looks into their folders."""

from __future__ import annotations

from pathlib import Path

import torch

from tfrnet.methods.tfr.config import TFRConfig
from tfrnet.methods.tfr.state import ChannelState
from tfrnet.state.manifest import Manifest
from tfrnet.state.store import StateStore

CHANNELS = 12
PAPER_TENSORS = {"mask", "risk", "velocity", "variance", "hits", "priority"}


def made_up_state(number: int) -> ChannelState:
    """A state that differs for every number."""
    generator = torch.Generator().manual_seed(number)
    initial = ChannelState.initial(CHANNELS, with_fisher=False)
    return ChannelState.from_tensors(
        {name: torch.rand(CHANNELS, generator=generator) for name in initial.tensors()}
    )


def make_manifest(key: bytes) -> Manifest:
    config = TFRConfig.paper().to_dict()
    return Manifest("a model", "f" * 64, config, [["a", 8], ["b", 4]], seed=0, guard=[])


def create(folder: Path, key: Path | None = None) -> StateStore:
    initial = ChannelState.initial(CHANNELS, with_fisher=False)
    return StateStore.create(folder, make_manifest, initial, key)


def commit(store: StateStore, number: int, accepted: bool = True, keep: int = 20) -> dict:
    record = {
        "id": f"request-{number}",
        "outcome": "accepted" if accepted else "rejected",
        "request_digest": f"{number:064d}",
    }
    return store.commit(record, made_up_state(number) if accepted else None, keep)


def make_state(folder: Path, commits: int = 3, first: int = 1, key: Path | None = None) -> Path:
    """Make a closed state of that many accepted requests."""
    with create(folder, key) as store:
        for number in range(first, first + commits):
            commit(store, number)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """Every file but the lock, byte for byte."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != "lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def generation_file(folder: Path, number: int) -> Path:
    return folder / "generations" / f"{number:08d}.safetensors"


def is_equal(left: ChannelState, right: ChannelState) -> bool:
    """Whether every tensor is the same, bit for bit."""
    one, other = left.tensors(), right.tensors()
    return one.keys() == other.keys() and all(
        one[name].numpy().tobytes() == other[name].numpy().tobytes() for name in one
    )
