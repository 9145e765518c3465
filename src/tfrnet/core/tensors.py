"""A method's state as named tensors, which one commit replaces as a unit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from safetensors.torch import save

from tfrnet.core.arrays import LENGTH_BYTES, arrays_digest


class State(Protocol):
    """A method's state; never changed in place."""

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the tensors by their public names."""

    def digest(self) -> str:
        """Return a hash of all names and values."""


@dataclass(frozen=True)
class TensorState:
    """Named tensors and nothing else; empty before the first request."""

    values: Mapping[str, torch.Tensor] = field(default_factory=dict)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the tensors by their names."""
        return dict(self.values)

    def digest(self) -> str:
        """Return a hash of every name and value."""
        return tensors_digest(self.values)


def tensors_digest(tensors: Mapping[str, torch.Tensor]) -> str:
    """Return a hash of named tensors that does not depend on how they are stored."""
    return arrays_digest((name, tensors[name].detach().cpu().numpy()) for name in sorted(tensors))


def tensors_file(tensors: Mapping[str, torch.Tensor], facts: Mapping[str, str]) -> bytes:
    """Return a safetensors file; equal tensors and facts give equal bytes.

    safetensors writes the facts in arbitrary order, so they are sorted in its header.
    """
    here = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    data: bytes = save(here, dict(facts))
    size = int.from_bytes(data[:LENGTH_BYTES], "little")
    end = LENGTH_BYTES + size
    header = json.loads(data[LENGTH_BYTES:end])
    header["__metadata__"] = dict(sorted(facts.items()))
    # Same length as before, so that tensors stay aligned.
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode().ljust(size)
    return b"".join([len(text).to_bytes(LENGTH_BYTES, "little"), text, memoryview(data)[end:]])
