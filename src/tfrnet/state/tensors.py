"""A method's state as named tensors: what one commit replaces as a unit."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch


class State(Protocol):
    """What every method's state offers; it is never changed in place."""

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the tensors by their public names."""

    def digest(self) -> str:
        """Return a hash of every name and value: equal states, and only they, have the same."""


@dataclass(frozen=True)
class TensorState:
    """Named tensors and nothing else. Without any, the model is as it was before all requests."""

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
