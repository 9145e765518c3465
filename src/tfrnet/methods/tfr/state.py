"""The state of TFR-Net: the mask and the memory of each channel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from tfrnet.core.tensors import tensors_digest
from tfrnet.methods.tfr.trajectory import Trajectory

_TRAJECTORY = ("risk", "velocity", "variance", "hits", "priority")
# Beyond the paper: not all steps have them.
_BEYOND = ("fisher", "forgotten", "forgotten_falls")


@dataclass(frozen=True)
class ChannelState:
    """What one commit replaces as a unit. All tensors are flat float32 over the channels.

    `fisher` is None with the paper's step. `forgotten` [rows, channels] is a sketch of what earlier
    requests made the model forget, if `memory_rows` asks for one; it grows up to that many rows.
    With `memory_fall`, `forgotten_falls` [rows] are their falls when every example falls by 1.
    """

    mask: torch.Tensor
    trajectory: Trajectory
    fisher: torch.Tensor | None = None
    forgotten: torch.Tensor | None = None
    forgotten_falls: torch.Tensor | None = None

    @classmethod
    def initial(
        cls,
        channels: int,
        with_fisher: bool,
        device: torch.device | None = None,
        with_memory: bool = False,
        with_falls: bool = False,
    ) -> ChannelState:
        """Return the state before the first request: mask of ones, empty memory."""
        ones = torch.ones(channels, device=device)
        zeros = [torch.zeros_like(ones) for _ in _TRAJECTORY]
        fisher = torch.zeros_like(ones) if with_fisher else None
        forgotten = ones.new_zeros(0, channels) if with_memory else None
        falls = ones.new_zeros(0) if with_memory and with_falls else None
        return cls(ones, Trajectory(*zeros), fisher, forgotten, falls)

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, torch.Tensor]) -> ChannelState:
        """Build the state from its named tensors."""
        trajectory = Trajectory(*(tensors[name] for name in _TRAJECTORY))
        beyond = (tensors.get(name) for name in _BEYOND)
        return cls(tensors["mask"], trajectory, *beyond)

    def to(self, device: torch.device) -> ChannelState:
        """Return the same state on a device."""
        return self.from_tensors({name: value.to(device) for name, value in self.tensors().items()})

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the tensors by their public names."""
        named = {"mask": self.mask}
        named |= {name: getattr(self.trajectory, name) for name in _TRAJECTORY}
        beyond = {name: getattr(self, name) for name in _BEYOND}
        return named | {name: values for name, values in beyond.items() if values is not None}

    def digest(self) -> str:
        """Return a hash of all names and values."""
        return tensors_digest(self.tensors())
