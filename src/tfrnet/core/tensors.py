"""A method's state as named tensors, which one commit replaces as a unit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from safetensors.torch import save

# A safetensors file begins with the length of its header.
_LENGTH_BYTES = 8


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
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def tensors_file_facts(data: bytes) -> dict[str, str]:
    """Return the facts beside the tensors of a safetensors file that the library can read."""
    size = int.from_bytes(data[:_LENGTH_BYTES], "little")
    header = json.loads(data[_LENGTH_BYTES : _LENGTH_BYTES + size])
    facts: dict[str, str] = header.get("__metadata__") or {}
    return facts


def tensors_file(tensors: Mapping[str, torch.Tensor], facts: Mapping[str, str]) -> bytes:
    """Return a safetensors file; equal tensors and facts give equal bytes.

    safetensors writes the facts in arbitrary order, so they are sorted in its header.
    """
    here = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    data: bytes = save(here, dict(facts))
    size = int.from_bytes(data[:_LENGTH_BYTES], "little")
    end = _LENGTH_BYTES + size
    header = json.loads(data[_LENGTH_BYTES:end])
    header["__metadata__"] = dict(sorted(facts.items()))
    # Same length as before, so that tensors stay aligned.
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode().ljust(size)
    return b"".join([len(text).to_bytes(_LENGTH_BYTES, "little"), text, memoryview(data)[end:]])
