"""What O3 keeps of forgotten prompts: pooled hidden states and no text."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from tfrnet.data.sampling import sample_indices

_FEATURES = "o3.features"
_TRAIN = "o3.train_mask"
_KEYS = "o3.keys"
_SNAPSHOTS = "o3.snapshots."


@dataclass(frozen=True)
class Memory:
    """The distinct prompts of all requests so far, in one pool.

    `features` [n, L, d], `train` [n]: on which side of the split, `keys` [n]: hashes of the tokens.
    """

    features: torch.Tensor
    train: torch.Tensor
    keys: torch.Tensor

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, torch.Tensor]) -> Memory | None:
        """Return a state's memory; None before the first request."""
        if _FEATURES not in tensors:
            return None
        return cls(tensors[_FEATURES], tensors[_TRAIN], tensors[_KEYS])

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return what the state holds."""
        return {_FEATURES: self.features, _TRAIN: self.train, _KEYS: self.keys}


def new_prompts(memory: Memory | None, prompts: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return the distinct prompts that are not known yet."""
    known = set(memory.keys.tolist()) if memory else set()
    return [prompt for prompt in dict.fromkeys(prompts) if prompt_key(prompt) not in known]


def extended(
    memory: Memory | None,
    prompts: Sequence[tuple[int, ...]],
    features: torch.Tensor,
    held_out: float,
    *key: object,
) -> Memory:
    """Return the memory with more prompts, of which a share `held_out` is held out for good."""
    keys = torch.tensor([prompt_key(prompt) for prompt in prompts], dtype=torch.long)
    before, already = (len(memory.keys), int((~memory.train).sum())) if memory else (0, 0)
    # Rounds half up, so that 8 prompts are split into 6 and 2.
    wanted = int(held_out * (before + len(prompts)) + 0.5) - already
    train = torch.ones(len(prompts), dtype=torch.bool)
    train[sample_indices(len(prompts), max(wanted, 0), "o3 held out", *key)] = False
    if memory is None:
        return Memory(features, train, keys)
    return Memory(
        torch.cat([memory.features, features]),
        torch.cat([memory.train, train]),
        torch.cat([memory.keys, keys]),
    )


def prompt_key(prompt: Sequence[int]) -> int:
    """Return a hash of tokens, as a signed 64-bit integer."""
    digest = hashlib.sha256(array("q", prompt).tobytes()).digest()
    return int.from_bytes(digest[:8], signed=True)


def earlier_factors(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return A of every module after each request so far, by the name of A. [k, r, d_in]."""
    found = {}
    for name, value in tensors.items():
        if name.endswith(".lora_A") and not name.startswith(_SNAPSHOTS):
            last = value.unsqueeze(0)
            older = tensors.get(_SNAPSHOTS + name)
            found[name] = last if older is None else torch.cat([older, last])
    return found


def snapshot_tensors(earlier: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return earlier factors as tensors of a state."""
    return {_SNAPSHOTS + name: value for name, value in earlier.items()}
